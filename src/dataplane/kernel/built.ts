import { fileURLToPath } from 'node:url';

const here = fileURLToPath(new URL('.', import.meta.url));
const marker = '/dist/src/dataplane/kernel/';
const root = here.endsWith(marker)
  ? here.slice(0, -marker.length)
  : fileURLToPath(new URL('../../..', import.meta.url));

/** The compiled datapath. */
export const builtObject = `${root.replace(/\/$/, '')}/dist/bpf/weir.bpf.o`;
/** The compiled program that looks for others. */
export const builtOthers = `${root.replace(/\/$/, '')}/dist/bpf/others.bpf.o`;
/** Worker threads run built code, also where the sources are loaded directly. */
export const builtWorker = `${root.replace(/\/$/, '')}/dist/src/dataplane/kernel/worker.js`;
export const builtEar = `${root.replace(/\/$/, '')}/dist/src/dataplane/kernel/ear-worker.js`;
