// Reads a file as speedscope does, and prints the sum of each of its profiles as JSON.
//
// speedscope's package has a page for browsers. Its importer is run here without the page: the last statement, which draws the page,
// is replaced by one that hands out the importer.
'use strict';

const fs = require('node:fs');
const path = require('node:path');
const vm = require('node:vm');

const [package_, file] = process.argv.slice(2);

function bundle() {
  const release = path.join(package_, 'dist', 'release');
  const name = fs.readdirSync(release).find((name) => /^speedscope-\w+\.js$/.test(name));
  const text = fs.readFileSync(path.join(release, name), 'utf8');
  const importer = /\(await (\w+)\)\.importProfileGroupFromText/.exec(text)[1];
  const drawing = text.lastIndexOf('console.log(`speedscope v');
  if (drawing < 0) throw new Error('this version of speedscope has another page');
  return `${text.slice(0, drawing)}globalThis.importer = ${importer};})();`;
}

async function main() {
  const nothing = () => {};
  const element = () => ({ style: {}, setAttribute: nothing, appendChild: nothing, addEventListener: nothing });
  const window = { addEventListener: nothing, matchMedia: () => ({ matches: false, addListener: nothing }), location: { hash: '' } };
  const context = {
    ...globalThis, window, self: window, console: { ...console, log: nothing },
    document: { createElement: element, head: element(), body: element(), querySelector: () => null, addEventListener: nothing },
    TextDecoder, TextEncoder, URL, performance, setTimeout, clearTimeout, atob, btoa,
  };
  vm.createContext(context);
  vm.runInContext(bundle(), context);
  const importer = await context.importer;
  const text = fs.readFileSync(file, 'utf8');
  const group = await importer.importProfileGroupFromText(path.basename(file), text);
  if (!group) throw new Error('speedscope does not know this file');
  const profiles = group.profiles.map((profile) => {
    const functions = [];
    profile.forEachFrame((frame) => functions.push(frame.name));
    return { name: profile.getName(), unit: profile.getWeightUnit(), sum: profile.getTotalWeight(), functions };
  });
  process.stdout.write(JSON.stringify({ name: group.name, first: group.indexToView, profiles }));
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
