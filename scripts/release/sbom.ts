import { createHash } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { Spec, Validation } from '@cyclonedx/cyclonedx-library';
import { isForThisMachine, type Package, shippedPackages } from './packages.js';

/**
 * Writes the software bill of materials of a release (CycloneDX 1.6). Arguments: the version and the file;
 * for the image also a file with a line for each Debian package (`NAME VERSION ARCHITECTURE SOURCE`), and a
 * file with `process.versions` of its Node.js as JSON.
 */
const [version, file, debianFile, nodeFile] = process.argv.slice(2);
if (version === undefined || file === undefined) throw new Error('usage: sbom.ts VERSION FILE [DEBIAN NODE]');

type Component = {
  readonly type: 'application' | 'library' | 'platform' | 'operating-system';
  readonly 'bom-ref': string;
  readonly name: string;
  readonly group?: string;
  readonly version: string;
  readonly purl?: string;
  readonly licenses?: readonly [{ readonly expression: string }];
  readonly hashes?: readonly [{ readonly alg: 'SHA-512'; readonly content: string }];
  readonly components?: readonly Component[];
};

const { bundled, folders } = shippedPackages();
const byPurl = new Map(
  [...bundled, ...folders.filter(isForThisMachine)].map((each) => [purlOf(each), npmComponent(each)] as const),
);
const components: Component[] = [...byPurl.values()];
if (debianFile !== undefined) components.push(...debianComponents(debianFile));
if (nodeFile !== undefined) components.push(nodeComponent(nodeFile));
const weir: Component = {
  type: 'application',
  'bom-ref': `pkg:npm/weir@${version}`,
  name: 'weir',
  version,
  purl: `pkg:npm/weir@${version}`,
  licenses: [{ expression: 'Apache-2.0' }],
};
const content = {
  bomFormat: 'CycloneDX',
  specVersion: '1.6',
  version: 1,
  metadata: {
    timestamp: new Date(Number(process.env.SOURCE_DATE_EPOCH) * 1_000).toISOString(),
    component: weir,
  },
  components,
  dependencies: [{ ref: weir['bom-ref'], dependsOn: components.map((each) => each['bom-ref']) }],
};
const text = `${JSON.stringify({ ...content, serialNumber: serialNumber(JSON.stringify(content)) }, null, 2)}\n`;
const faults: unknown = await new Validation.JsonStrictValidator(Spec.Version.v1dot6).validate(text);
if (faults !== null) throw new Error(`the bill of materials is not valid: ${JSON.stringify(faults)}`);
writeFileSync(file, text);

function purlOf({ name, version: of }: Package): string {
  return `pkg:npm/${name.replace('@', '%40')}@${of}`;
}

function npmComponent(each: Package): Component {
  const [scope, name] = each.name.startsWith('@') ? each.name.split('/') : [undefined, each.name];
  const [algorithm, digest] = each.integrity?.split('-') ?? [];
  return {
    type: 'library',
    'bom-ref': purlOf(each),
    ...(scope === undefined ? {} : { group: scope }),
    name: name ?? each.name,
    version: each.version,
    purl: purlOf(each),
    ...(each.license === undefined ? {} : { licenses: [{ expression: each.license }] }),
    ...(algorithm !== 'sha512' || digest === undefined
      ? {}
      : { hashes: [{ alg: 'SHA-512', content: Buffer.from(digest, 'base64').toString('hex') }] }),
  };
}

function debianComponents(path: string): Component[] {
  const lines = readFileSync(path, 'utf8').trim().split('\n');
  return lines.map((line) => {
    const [name = '', of = '', architecture = '', source = ''] = line.split(' ');
    const upstream = source === name ? '' : `&upstream=${encodeURIComponent(source)}`;
    const purl = `pkg:deb/debian/${encodeURIComponent(name)}@${encodeURIComponent(of)}?arch=${architecture}&distro=debian-13${upstream}`;
    return { type: 'library', 'bom-ref': purl, group: 'debian', name, version: of, purl };
  });
}

/** Node.js, with the libraries that its program contains. */
function nodeComponent(path: string): Component {
  const {
    node,
    modules: _modules,
    napi: _napi,
    ...contained
  } = JSON.parse(readFileSync(path, 'utf8')) as {
    node: string;
  } & Record<string, string>;
  const libraries = Object.entries(contained).filter(([, of]) => of !== '');
  return {
    type: 'platform',
    'bom-ref': `pkg:generic/node@${node}`,
    name: 'node',
    version: node,
    purl: `pkg:generic/node@${node}`,
    licenses: [{ expression: 'MIT' }],
    components: libraries.map(([name, of]) => ({
      type: 'library',
      'bom-ref': `pkg:generic/node@${node}#${name}`,
      name,
      version: of,
      purl: `pkg:generic/${name}@${of}`,
    })),
  };
}

/** Derives the serial number from the contents `of`, so that equal releases are equal byte for byte. */
function serialNumber(of: string): string {
  const hex = createHash('sha256').update(of).digest('hex');
  const variant = ((Number.parseInt(hex.slice(16, 18), 16) & 0x3f) | 0x80).toString(16);
  return `urn:uuid:${hex.slice(0, 8)}-${hex.slice(8, 12)}-8${hex.slice(13, 16)}-${variant}${hex.slice(18, 20)}-${hex.slice(20, 32)}`;
}
