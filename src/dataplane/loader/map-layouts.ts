import { libbpf } from '#libc/bpf/libbpf.js';
import { check } from '#libc/libc.js';
import { mapShape } from './bpf-fd.js';
import type { BpfObject, MapLayouts, MapName } from './bpf-object.js';

export type Layouts = Readonly<Partial<Record<MapName, MapLayouts>>>;

/**
 * Writes the layouts of these maps of a BPF object into its map `layouts`, as JSON with a final zero byte.
 * The next process compares these layouts with those of its own maps. The kernel also has the layouts as
 * BTF, but shows them only to a process with CAP_SYS_ADMIN.
 */
export function writeLayouts(object: BpfObject, names: readonly MapName[]): void {
  const fd = object.mapFd('layouts');
  const value = new Uint8Array(mapShape(fd).valueSize);
  const layouts: Layouts = Object.fromEntries(names.map((name) => [name, object.layoutsOf(name)]));
  const text = new TextEncoder().encode(JSON.stringify(layouts));
  if (text.length >= value.length)
    throw new RangeError(
      `write the layouts of the BPF maps: ${text.length} bytes do not fit into ${value.length} bytes`,
    );
  value.set(text);
  check('write the layouts', libbpf().bpf_map_update_elem(fd, new Uint8Array(4), value, 0));
}

/**
 * Reads the layouts that `writeLayouts` wrote into the map. Returns an empty object if they cannot be read.
 */
export function readLayouts(fd: number): Layouts {
  try {
    const value = new Uint8Array(mapShape(fd).valueSize);
    check('read the layouts', libbpf().bpf_map_lookup_elem(fd, new Uint8Array(4), value));
    const layouts: unknown = JSON.parse(new TextDecoder().decode(value.subarray(0, value.indexOf(0))));
    return isLayouts(layouts) ? layouts : {};
  } catch {
    return {};
  }
}

/** Whether a value of the pinned map, which another build can have written, has the shape of layouts. */
function isLayouts(value: unknown): value is Layouts {
  return isRecordOf(value, (layouts) => isRecordOf(layouts) && isLayout(layouts.key) && isLayout(layouts.value));
}

function isLayout(value: unknown): boolean {
  if (!isRecordOf(value)) return false;
  const isNumber = (member: unknown): boolean => Number.isSafeInteger(member);
  return isNumber(value.size) && isRecordOf(value.fields, (field) => isRecordOf(field, isNumber));
}

function isRecordOf(
  value: unknown,
  fits: (member: unknown) => boolean = () => true,
): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value) && Object.values(value).every(fits);
}
