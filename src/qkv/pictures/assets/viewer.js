"use strict";(()=>{for(let t of document.querySelectorAll("script.qkv-data")){let a=JSON.parse(t.textContent??""),e=document.getElementById(t.dataset.place??"");e&&(e.textContent=a.title)}})();
