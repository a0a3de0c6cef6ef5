'use strict';
const kept = [];
function inner(size) {
  kept[0] = Buffer.allocUnsafeSlow(size);
}

class Keeper {
  keep(size) {
    inner(size);
  }
}

const outer = (size) => {
  new Keeper().keep(size);
};

const LARGE = 3_000_000;
outer(LARGE);
for (let round = 0; round < 60_000; round += 1) {
  outer(round % 16);
}
for (let round = 0; round < 4; round += 1) {
  outer(LARGE + round);
}
setTimeout(() => {}, 1500);
