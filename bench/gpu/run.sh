#!/bin/bash
# run.sh 1|2: the probes of one call, each in a process of its own with a limit; results at once in
# $OUT/results.txt
: "${OUT:=/tmp/out}"; mkdir -p "$OUT"; export OUT PYTHONUNBUFFERED=1 TORCHINDUCTOR_CACHE_DIR=/tmp/inductor TRITON_CACHE_DIR=/tmp/triton
cd "$(dirname "$0")"; LIMIT=${LIMIT:-565}; SECONDS=0
p() { local t=$1 left=$((LIMIT - SECONDS)) begin=$SECONDS rc; shift
  if [ $left -lt 12 ]; then echo "SKIPPED, no time left: $*" | tee -a "$OUT/results.txt"; return; fi
  [ $t -gt $left ] && t=$left
  echo "=== $* (limit $t s, at $SECONDS s, $(date +%T))" | tee -a "$OUT/log.txt"
  timeout -k 5 $t python3 "$@" >> "$OUT/log.txt" 2>&1; rc=$?
  [ $rc -ne 0 ] && echo "$*: exit status $rc after $((SECONDS - begin)) s: $(tail -n 1 "$OUT/log.txt" | cut -c1-200)" | tee -a "$OUT/results.txt"; }
nvidia-smi --query-gpu=timestamp,clocks.sm,clocks.mem,power.draw,temperature.gpu --format=csv,noheader -lms 1000 > "$OUT/clocks.csv" 2>/dev/null &
WATCH=$!
# AGAIN="gemm rivals,1.5B,cudnn,default": what call 2 runs first, because call 1 missed it
if [ "$1" = 1 ]; then
  p 40 env.py
  p 90 cudnn_det.py
  p 60 norm.py
  p 60 elements.py
  p 90 loss.py
  p 90 scalar.py
  p 90 adamw.py
  p 40 graphs.py
  p 30 gemm.py small
  p 45 gemm.py
  p 150 rivals.py 160M cudnn eager default reduce-overhead
  p 200 rivals.py 1.5B cudnn eager default reduce-overhead
  p 40 nvrtc_time.py
else
  for again in $AGAIN; do set -- ${again//,/ }; script=$1; shift; p 150 $script.py "$@"; done
  p 100 matmuls.py 160M 1.5B
  p 60 overlap.py
  p 200 rivals.py 160M cudnn max-autotune
  p 150 rivals.py 1.5B flash eager default reduce-overhead
  p 110 rivals.py 160M flash eager default reduce-overhead
  p 100 rivals.py 160M cudnn default:copt default:complex
  p 100 rivals.py 1.5B cudnn default:copt
fi
kill $WATCH 2>/dev/null
echo; echo "RESULTS after $SECONDS s"; python3 summary.py
