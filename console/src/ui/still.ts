import { useSignal } from '@preact/signals';
import { useRef } from 'preact/hooks';

/**
 * Keeps the value of a polled list while the pointer is in it, so that rows do not move below the pointer.
 * Another `key`, such as another filter, shows its value at once. `handlers` belong to the element around
 * the list.
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
    /** Shows the present value, for example after a write. */
    release: point(false),
  };
}
