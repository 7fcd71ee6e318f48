import type { KubernetesObject, Labels } from '#kubernetes/watch/objects.js';
import { isSelected, type ParsedSelector } from './selectors.js';

/**
 * Finds the selectors that select an object without a test of every selector. Each selector is filed under
 * one of its conditions: the value of a label, a label, a namespace, or a service account; otherwise in
 * `#others`. The condition that the fewest selectors have is used.
 */
export class SelectorIndex {
  readonly #values = new Map<string, Map<string, ParsedSelector[]>>();
  readonly #keys = new Map<string, ParsedSelector[]>();
  readonly #namespaces = new Map<string, ParsedSelector[]>();
  readonly #serviceAccounts = new Map<string, ParsedSelector[]>();
  readonly #others: ParsedSelector[] = [];
  /** The position of each selector in the order of the keys. */
  readonly #order: ReadonlyMap<ParsedSelector, number>;

  constructor(selectors: readonly ParsedSelector[]) {
    const sorted = [...selectors].sort((a, b) => (a.key < b.key ? -1 : 1));
    this.#order = new Map(sorted.map((selector, index) => [selector, index]));
    const places = sorted.map(placesOf);
    const counts = new Map<string, number>();
    for (const place of places.flat()) counts.set(place.text, (counts.get(place.text) ?? 0) + 1);
    for (const [index, selector] of sorted.entries()) {
      let best: Place | undefined;
      for (const place of places[index] ?? []) {
        if (best === undefined || (counts.get(place.text) ?? 0) < (counts.get(best.text) ?? 0)) best = place;
      }
      this.#put(selector, best);
    }
  }

  /** Returns the selectors that select an object, in the order of their keys. */
  matching(object: KubernetesObject, namespaceLabels: Labels | undefined): readonly ParsedSelector[] {
    const found: ParsedSelector[] = [];
    const test = (candidates: readonly ParsedSelector[] | undefined) => {
      if (candidates === undefined) return;
      for (const selector of candidates) if (isSelected(selector, object, namespaceLabels)) found.push(selector);
    };
    const { labels } = object;
    for (let at = 0; at < labels.length; at += 2) {
      const key = labels[at] as string;
      test(this.#values.get(key)?.get(labels[at + 1] as string));
      test(this.#keys.get(key));
    }
    if (object.resource === 'pods') {
      test(this.#namespaces.get(object.namespace));
      test(this.#serviceAccounts.get(object.serviceAccount));
    }
    test(this.#others);
    return found.length < 2 ? found : found.sort((a, b) => this.#placeInOrder(a) - this.#placeInOrder(b));
  }

  #placeInOrder(selector: ParsedSelector): number {
    return this.#order.get(selector) ?? 0;
  }

  #put(selector: ParsedSelector, place: Place | undefined): void {
    switch (place?.type) {
      case undefined:
        this.#others.push(selector);
        return;
      case 'value': {
        const values = this.#values.get(place.key) ?? new Map<string, ParsedSelector[]>();
        this.#values.set(place.key, values);
        for (const value of new Set(place.values)) append(values, value, selector);
        return;
      }
      case 'key':
        append(this.#keys, place.key, selector);
        return;
      case 'namespace':
        append(this.#namespaces, place.key, selector);
        return;
      case 'service_account':
        append(this.#serviceAccounts, place.key, selector);
        return;
    }
  }
}

/** A condition by which `SelectorIndex` finds a selector. Conditions with equal `text` are the same. */
type Place = {
  readonly type: 'value' | 'key' | 'namespace' | 'service_account';
  readonly key: string;
  readonly values: readonly string[];
  readonly text: string;
};

function placesOf(selector: ParsedSelector): readonly Place[] {
  const places: Place[] = [];
  const add = (type: Place['type'], key: string, values: readonly string[] = []) =>
    places.push({ type, key, values, text: JSON.stringify([type, key, values]) });
  for (const { key, operator, values } of selector.labels) {
    if (operator === 'In') add('value', key, values);
    else if (operator === 'Exists') add('key', key);
  }
  if (selector.resource === 'pods') {
    if (selector.namespace !== undefined) add('namespace', selector.namespace);
    if (selector.serviceAccount !== undefined) add('service_account', selector.serviceAccount);
  }
  return places;
}

function append(lists: Map<string, ParsedSelector[]>, key: string, selector: ParsedSelector): void {
  const list = lists.get(key);
  if (list === undefined) lists.set(key, [selector]);
  else list.push(selector);
}
