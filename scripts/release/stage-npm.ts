import { cpSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { isForThisMachine, type Locked, type Package, shippedPackages } from './packages.js';

/** Names of files and folders of npm packages that no node loads. */
const NEVER_RUN =
  /^(\..*|tests?|benchmarks?|examples?|docs?|build|fixtures|scripts|types|musl_.*|(test|bench|benchmark|example|eslint\.config)\.js|cnoke\.cjs|tsconfig\.json)$/;

/** The licence texts of packages that have no licence in their folder, by package name. */
const TEXTS: Readonly<Record<string, readonly string[]>> = {
  '@bufbuild/protobuf': ['scripts/release/licences/protobuf.txt', 'LICENSE'],
  [`@koromix/koffi-${process.platform}-${process.arch}`]: ['node_modules/koffi/LICENSE.txt'],
  'abstract-logging': ['scripts/release/licences/abstract-logging.txt'],
};

/**
 * Writes the files of a release that depend on the npm packages into the folder of the first argument:
 * package.json, npm-shrinkwrap.json, THIRD-PARTY-LICENSES and node_modules. The second argument is the
 * version.
 */
const [stage, version] = process.argv.slice(2);
if (stage === undefined || version === undefined) throw new Error('usage: stage-npm.ts FOLDER VERSION');
const own = JSON.parse(readFileSync('package.json', 'utf8')) as Record<string, unknown> & {
  dependencies: Record<string, string>;
};
const { bundled, folders } = shippedPackages();
const dependencies = Object.fromEntries(
  Object.entries(own.dependencies).filter(([name]) => folders.some(({ folder }) => folder === `node_modules/${name}`)),
);
// The BPF objects in dist/bpf were compiled and tested on the architecture of this machine.
const platform = { os: [process.platform], cpu: [process.arch] };
const { name, description, license, type, engines, exports, bin } = own;
const released = { name, version, description, license, type, ...platform, engines, exports, bin, dependencies };
writeJson('package.json', released);
writeJson('npm-shrinkwrap.json', {
  name,
  version,
  lockfileVersion: 3,
  requires: true,
  packages: { '': { name, version, license, ...platform, bin, dependencies, engines }, ...locked(folders) },
});
const here = folders.filter(isForThisMachine);
for (const each of here) copyPackage(each);
writeFileSync(join(stage, 'THIRD-PARTY-LICENSES'), licences([...new Set([...bundled, ...here])]));

function writeJson(path: string, content: unknown): void {
  writeFileSync(join(stage as string, path), `${JSON.stringify(content, null, 2)}\n`);
}

function locked(packages: readonly Package[]): Record<string, Locked> {
  return Object.fromEntries(packages.map(({ name: _, folder, ...each }) => [folder, each]));
}

/** Copies the licence and the files of a package that Node.js loads, without tests, types and C++ sources. */
function copyPackage({ folder }: Package): void {
  const target = join(stage as string, folder);
  mkdirSync(target, { recursive: true });
  cpSync(folder, target, { recursive: true, filter: runs });
}

function runs(path: string): boolean {
  const file = basename(path);
  if (NEVER_RUN.test(file)) return false;
  return statSync(path).isDirectory() || /\.(js|cjs|mjs|json|node)$/.test(file) || isLicence(file);
}

function isLicence(file: string): boolean {
  return /^(licen[cs]e|copying|notice)/i.test(file);
}

function licences(packages: readonly Package[]): string {
  const byFolder = new Map(packages.map((each) => [each.folder, each]));
  return [...byFolder.values()].map(licenceOf).join(`\n${'='.repeat(80)}\n\n`);
}

function licenceOf({ name, version, license, folder }: Package): string {
  const inFolder = readdirSync(folder).filter(isLicence);
  const files = inFolder.length > 0 ? inFolder.map((file) => join(folder, file)) : TEXTS[name];
  if (files === undefined)
    throw new Error(`${folder} contains no licence file: add the path of its licence text to TEXTS`);
  const texts = files.map((file) => readFileSync(file, 'utf8').trim());
  return [`${name} ${version}`, `License: ${license ?? 'see the text'}`, ...texts].join('\n\n').concat('\n');
}
