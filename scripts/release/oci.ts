import { createHash } from 'node:crypto';
import { copyFileSync, mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

/**
 * Writes an image layout of OCI with one image for this architecture. Arguments: the version, the folder of
 * the layout, and the layers from the lowest. A layer is a path without the suffixes of its two files, `.tar`
 * and `.tar.gz`.
 */
const [version, layout, ...layers] = process.argv.slice(2);
if (version === undefined || layout === undefined) throw new Error('usage: oci.ts VERSION FOLDER LAYER...');
const blobs = join(layout, 'blobs', 'sha256');
mkdirSync(blobs, { recursive: true });

const created = new Date(Number(process.env.SOURCE_DATE_EPOCH) * 1_000).toISOString().replace('.000Z', 'Z');
const architecture = process.arch === 'x64' ? 'amd64' : process.arch;
const config = addJson('application/vnd.oci.image.config.v1+json', {
  created,
  architecture,
  os: 'linux',
  config: {
    Env: ['PATH=/usr/sbin:/usr/bin'],
    Entrypoint: ['/usr/bin/weir'],
    Cmd: ['run', '--config', '/etc/weir/weir.yaml'],
    WorkingDir: '/',
    Labels: {
      'org.opencontainers.image.title': 'weir',
      'org.opencontainers.image.version': version,
      'org.opencontainers.image.licenses': 'Apache-2.0',
    },
  },
  rootfs: { type: 'layers', diff_ids: layers.map((layer) => `sha256:${sha256(`${layer}.tar`)}`) },
  history: layers.map((layer) => ({ created, created_by: `weir ${layer.slice(layer.lastIndexOf('/') + 1)}` })),
});
const manifest = addJson('application/vnd.oci.image.manifest.v1+json', {
  schemaVersion: 2,
  mediaType: 'application/vnd.oci.image.manifest.v1+json',
  config,
  layers: layers.map((layer) => addFile('application/vnd.oci.image.layer.v1.tar+gzip', `${layer}.tar.gz`)),
});
writeFileSync(join(layout, 'oci-layout'), JSON.stringify({ imageLayoutVersion: '1.0.0' }));
writeFileSync(
  join(layout, 'index.json'),
  JSON.stringify({
    schemaVersion: 2,
    mediaType: 'application/vnd.oci.image.index.v1+json',
    manifests: [
      {
        ...manifest,
        platform: { architecture, os: 'linux' },
        // containerd names the imported image by the first annotation, other tools by the second.
        annotations: {
          'io.containerd.image.name': `docker.io/library/weir:${version}`,
          'org.opencontainers.image.ref.name': version,
        },
      },
    ],
  }),
);

type Descriptor = { readonly mediaType: string; readonly digest: string; readonly size: number };

function addFile(mediaType: string, path: string): Descriptor {
  const digest = sha256(path);
  copyFileSync(path, join(blobs, digest));
  return { mediaType, digest: `sha256:${digest}`, size: statSync(path).size };
}

function addJson(mediaType: string, content: unknown): Descriptor {
  const text = JSON.stringify(content);
  const digest = createHash('sha256').update(text).digest('hex');
  writeFileSync(join(blobs, digest), text);
  return { mediaType, digest: `sha256:${digest}`, size: text.length };
}

function sha256(path: string): string {
  return createHash('sha256').update(readFileSync(path)).digest('hex');
}
