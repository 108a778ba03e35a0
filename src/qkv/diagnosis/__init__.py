"""Diagnosis: which faults give the candidate's own numbers back."""

from qkv.diagnosis.estimation import estimate as estimate
from qkv.diagnosis.explanation import Diagnosis as Diagnosis, Explanation as Explanation, Undeclared as Undeclared
from qkv.diagnosis.observation import Observation as Observation
from qkv.diagnosis.search import diagnose as diagnose
from qkv.diagnosis.twins import IMPOSSIBLE as IMPOSSIBLE, twin as twin, under as under
