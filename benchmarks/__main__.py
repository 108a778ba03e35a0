"""Runs every benchmark, one after the other."""

from benchmarks import confusion, identification, long, pictures, search_time, time_to_answer, tolerance

for benchmark in (time_to_answer, search_time, tolerance, long, confusion, identification, pictures):
    print(f"\n{benchmark.__name__}: {(benchmark.__doc__ or '').splitlines()[0]}")
    benchmark.main()
