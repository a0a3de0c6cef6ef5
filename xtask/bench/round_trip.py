"""JSON text to objects and back, for a given time; prints what one round trip took.

usage: round_trip.py SECONDS
"""

import json
import sys
import time

seconds = float(sys.argv[1])
text = json.dumps([{"id": i, "name": f"name {i}", "tags": ["a", "b", str(i)]} for i in range(200)])
rounds = 0
begin = time.monotonic()
while True:
    assert len(json.dumps(json.loads(text))) == len(text)
    rounds += 1
    spent = time.monotonic() - begin
    if spent >= seconds:
        break
print(f"ns_per_operation {spent * 1e9 / rounds:.3f}")
