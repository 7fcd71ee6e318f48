import { useSignal } from '@preact/signals';
import { useRef } from 'preact/hooks';

/**
 * Keeps a polled list unchanged while the pointer is in it, so that rows do not move below the pointer. If
 * `key` changes, for example because of a new filter, returns the new value at once. `handlers` are event
 * handlers for the element around the list.
 */
export function useStill<T>(value: T | null, key: string) {
  const isPointed = useSignal(false);
  const kept = useRef({ key, value });
  if (!isPointed.value || kept.current.key !== key || kept.current.value === null) kept.current = { key, value };
  const point = (isIn: boolean) => () => {
    isPointed.value = isIn;
  };
  return {
    shown: kept.current.value,
    handlers: { onPointerEnter: point(true), onPointerLeave: point(false) },
    /** Returns to the present value, for example after a write. */
    release: point(false),
  };
}
