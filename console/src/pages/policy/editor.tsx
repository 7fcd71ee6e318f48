import { autocompletion, type CompletionSource } from '@codemirror/autocomplete';
import { defaultKeymap, history, historyKeymap } from '@codemirror/commands';
import { yaml } from '@codemirror/lang-yaml';
import { bracketMatching, HighlightStyle, indentOnInput, indentUnit, syntaxHighlighting } from '@codemirror/language';
import { type Diagnostic, lintGutter, lintKeymap, setDiagnostics } from '@codemirror/lint';
import { EditorState, RangeSet, StateEffect, StateField } from '@codemirror/state';
import {
  Decoration,
  type DecorationSet,
  drawSelection,
  EditorView,
  GutterMarker,
  gutter,
  highlightActiveLine,
  keymap,
  lineNumbers,
} from '@codemirror/view';
import { tags } from '@lezer/highlight';
import type { RefObject } from 'preact';
import { useEffect, useLayoutEffect, useRef } from 'preact/hooks';
import type { LazyText } from '../../charts/draft.chart.js';

/** A short text beside a line, such as the hits of the rule that begins there. */
export type LineNote = {
  readonly at: number;
  readonly text: string;
  readonly title: string;
  readonly isQuiet: boolean;
};
export type EditorMark = {
  readonly from: number;
  readonly to: number;
  readonly severity: 'error' | 'warning';
  readonly message: string;
};

/** The functions of an editor that a page can call. */
export type EditorHandle = {
  readonly text: () => LazyText;
  /** Replaces the text by the smallest change, so that undo and the cursor keep working. */
  replace(text: string): void;
  goTo(offset: number): void;
  /**
   * Selects the next occurrence of a text, without regard to case. With `direction` 0, the present selection
   * may be the beginning of the occurrence.
   */
  find(words: string, direction: -1 | 0 | 1): Found;
  focus(): void;
  /** Returns the number of the line at an offset, counted from 1. */
  lineOf(offset: number): number;
};

/**
 * `number`: the position of the selected occurrence among all; 0 if none is selected. `count`: the number of
 * occurrences, at most `MOST_FOUND`.
 */
export type Found = { readonly number: number; readonly count: number };
export const MOST_FOUND = 1_000;

type Props = {
  /** The initial text. Later changes of this property have no effect. */
  readonly text: string;
  readonly label: string;
  readonly isReadOnly?: boolean;
  readonly marks?: readonly EditorMark[];
  readonly notes?: readonly LineNote[];
  /** The offset of the line to highlight, because a link leads to it. */
  readonly marked?: number | null;
  readonly complete?: CompletionSource;
  readonly onEdit?: (text: LazyText) => void;
  /** Called with the offsets of the visible text, once at the start and after each scroll. */
  readonly onView?: (from: number, to: number) => void;
  /** Called for Ctrl+F with direction 0, and for F3 with the direction of the search. */
  readonly onFind?: (direction: -1 | 0 | 1, selected: string) => void;
  readonly handle?: RefObject<EditorHandle | null>;
};

/** A text editor for YAML. It lives in a shadow root, in which its styles satisfy the content security policy. */
export function Editor({
  text,
  label,
  isReadOnly = false,
  marks,
  notes,
  marked = null,
  complete,
  onEdit,
  onView,
  onFind,
  handle,
}: Props) {
  const host = useRef<HTMLDivElement>(null);
  const editor = useRef<EditorView>(null);
  const edited = useRef(onEdit);
  edited.current = onEdit;
  // A layout effect, because it must run before the effects of the page that use the editor.
  useLayoutEffect(() => {
    if (host.current === null) return;
    const root = host.current.shadowRoot ?? host.current.attachShadow({ mode: 'open' });
    const view = new EditorView({
      parent: root,
      root,
      state: EditorState.create({
        doc: text,
        extensions: [
          extensions,
          notes === undefined ? [] : noteGutter,
          EditorState.readOnly.of(isReadOnly),
          EditorView.contentAttributes.of({ 'aria-label': label, spellcheck: 'false' }),
          onFind === undefined ? [] : findKeys(onFind),
          complete === undefined ? [] : autocompletion({ override: [complete], icons: false }),
          EditorView.updateListener.of((update) => {
            if (update.docChanged) edited.current?.(update.state.doc);
            if (update.viewportChanged) onView?.(update.view.viewport.from, update.view.viewport.to);
          }),
        ],
      }),
    });
    editor.current = view;
    if (handle !== undefined) handle.current = handleOf(view);
    onView?.(view.viewport.from, view.viewport.to);
    return () => {
      editor.current = null;
      view.destroy();
    };
  }, []);
  useEffect(() => {
    const view = editor.current;
    if (view === null || marks === undefined) return;
    const end = view.state.doc.length;
    const diagnostics: Diagnostic[] = marks.map(({ from, to, ...mark }) => ({
      ...mark,
      from: Math.min(from, end),
      to: Math.min(Math.max(to, from), end),
    }));
    view.dispatch(setDiagnostics(view.state, diagnostics));
  }, [marks]);
  useEffect(() => {
    const view = editor.current;
    if (view === null || notes === undefined) return;
    const { doc } = view.state;
    const ranges = notes
      .filter(({ at }) => at <= doc.length)
      .map((note) => new NoteMarker(note).range(doc.lineAt(note.at).from));
    view.dispatch({ effects: setNotes.of(RangeSet.of(ranges, true)) });
  }, [notes]);
  useEffect(() => {
    const view = editor.current;
    if (view === null) return;
    const at = marked !== null && marked <= view.state.doc.length ? view.state.doc.lineAt(marked).from : null;
    view.dispatch({
      effects: [setMarked.of(at), ...(at === null ? [] : [EditorView.scrollIntoView(at, { y: 'center' })])],
    });
  }, [marked]);
  return <div class="editor" ref={host} />;
}

function handleOf(view: EditorView): EditorHandle {
  return {
    text: () => view.state.doc,
    replace: (next) => {
      const now = view.state.doc.toString();
      const { from, tail } = difference(now, next);
      view.dispatch({
        changes: { from, to: now.length - tail, insert: next.slice(from, next.length - tail) },
        effects: EditorView.scrollIntoView(from, { y: 'center' }),
        userEvent: 'input',
      });
    },
    goTo: (offset) => {
      const at = Math.min(offset, view.state.doc.length);
      view.dispatch({ selection: { anchor: at }, effects: EditorView.scrollIntoView(at, { y: 'center' }) });
      view.focus();
    },
    find: (words, direction) => {
      const place = placeOf(view.state, words, direction);
      if (place.at === -1) return place;
      view.dispatch({
        selection: { anchor: place.at, head: place.at + words.length },
        effects: EditorView.scrollIntoView(place.at, { y: 'center' }),
      });
      return place;
    },
    focus: () => view.focus(),
    lineOf: (offset) => view.state.doc.lineAt(Math.min(offset, view.state.doc.length)).number,
  };
}

function findKeys(onFind: NonNullable<Props['onFind']>) {
  const run = (direction: -1 | 0 | 1) => (view: EditorView) => {
    const { from, to } = view.state.selection.main;
    onFind(direction, view.state.sliceDoc(from, Math.min(to, from + 200)).split('\n')[0] ?? '');
    return true;
  };
  return keymap.of([
    { key: 'Mod-f', run: run(0), preventDefault: true },
    { key: 'F3', run: run(1), shift: run(-1), preventDefault: true },
  ]);
}

/**
 * A cached copy of the text in lower case. Copying a long text for each key stroke would take too long.
 */
let lowered: { readonly doc: unknown; readonly text: string } | undefined;

function placeOf({ doc, selection }: EditorState, words: string, direction: -1 | 0 | 1): Found & { at: number } {
  if (lowered?.doc !== doc) {
    const text = doc.toString();
    const lower = text.toLowerCase();
    // Search with case if the copy has another length: a few letters change their length in lower case, so
    // offsets would be wrong.
    lowered = { doc, text: lower.length === text.length ? lower : text };
  }
  const { text } = lowered;
  const wanted = words.toLowerCase();
  if (wanted === '') return { at: -1, number: 0, count: 0 };
  const { from, to } = selection.main;
  let at =
    direction === -1
      ? from === 0
        ? -1
        : text.lastIndexOf(wanted, from - 1)
      : text.indexOf(wanted, direction === 0 ? from : to);
  if (at === -1) at = direction === -1 ? text.lastIndexOf(wanted) : text.indexOf(wanted);
  let [number, count] = [0, 0];
  for (
    let next = text.indexOf(wanted);
    next !== -1 && count < MOST_FOUND;
    next = text.indexOf(wanted, next + wanted.length)
  ) {
    count++;
    if (next <= at) number = count;
  }
  return { at, number, count };
}

/** Returns the number of characters that two texts have in common at the beginning and at the end. */
function difference(one: string, other: string): { readonly from: number; readonly tail: number } {
  const shorter = Math.min(one.length, other.length);
  const common = (length: number, isEqual: (from: number, to: number) => boolean) => {
    let at = 0;
    for (let step = length; step > 0; ) {
      if (at + step <= length && isEqual(at, at + step)) at += step;
      else step = Math.floor(step / 2);
    }
    return at;
  };
  const from = common(shorter, (begin, end) => one.slice(begin, end) === other.slice(begin, end));
  const tail = common(shorter - from, (begin, end) => {
    const [first, second] = [one.length, other.length];
    return one.slice(first - end, first - begin) === other.slice(second - end, second - begin);
  });
  return { from, tail };
}

class NoteMarker extends GutterMarker {
  constructor(readonly note: LineNote) {
    super();
  }
  override eq(other: NoteMarker) {
    return other.note.text === this.note.text && other.note.title === this.note.title;
  }
  override toDOM() {
    const mark = document.createElement('span');
    mark.textContent = this.note.text;
    mark.title = this.note.title;
    if (this.note.isQuiet) mark.className = 'quiet';
    return mark;
  }
}

const setNotes = StateEffect.define<RangeSet<GutterMarker>>();
const notesField = StateField.define<RangeSet<GutterMarker>>({
  create: () => RangeSet.empty,
  update: (notes, { changes, effects }) => {
    for (const effect of effects) if (effect.is(setNotes)) return effect.value;
    return notes.map(changes);
  },
});
const spacer = new NoteMarker({ at: 0, text: 'unused', title: '', isQuiet: true });
const noteGutter = [
  notesField,
  gutter({ class: 'cm-notes', markers: (view) => view.state.field(notesField), initialSpacer: () => spacer }),
];

const setMarked = StateEffect.define<number | null>();
const markedLine = Decoration.line({ class: 'cm-marked' });
const markedField = StateField.define<DecorationSet>({
  create: () => Decoration.none,
  update: (marked, { changes, effects }) => {
    for (const effect of effects)
      if (effect.is(setMarked))
        return effect.value === null ? Decoration.none : Decoration.set([markedLine.range(effect.value)]);
    return marked.map(changes);
  },
  provide: (field) => EditorView.decorations.from(field),
});

const colors = HighlightStyle.define([
  { tag: [tags.propertyName, tags.definition(tags.propertyName)], color: 'var(--accent)' },
  { tag: [tags.comment, tags.meta, tags.separator, tags.squareBracket, tags.brace], color: 'var(--muted)' },
  { tag: [tags.string, tags.content], color: 'var(--text)' },
  { tag: [tags.number, tags.bool, tags.null], color: 'var(--audit)' },
]);

const theme = EditorView.theme({
  '&': { height: '100%', fontSize: '13.5px', backgroundColor: 'var(--panel)', color: 'var(--text)' },
  '&.cm-focused': { outline: 'none' },
  '.cm-scroller': { fontFamily: 'var(--mono)', lineHeight: '1.55' },
  '.cm-content': { caretColor: 'var(--text)', padding: '10px 0' },
  '.cm-cursor': { borderLeftColor: 'var(--text)' },
  '.cm-gutters': { backgroundColor: 'var(--panel)', color: 'var(--muted)', border: '0' },
  '.cm-lineNumbers': { minWidth: '3em' },
  '.cm-activeLine': { backgroundColor: 'color-mix(in oklch, var(--accent) 6%, transparent)' },
  '.cm-selectionBackground, &.cm-focused .cm-selectionBackground, &.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground':
    { backgroundColor: 'color-mix(in oklch, var(--accent) 24%, transparent)' },
  '.cm-marked': { backgroundColor: 'var(--accent-soft)', boxShadow: 'inset 3px 0 0 var(--accent)' },
  '.cm-notes': { minWidth: '62px', fontSize: '11.5px' },
  '.cm-notes .cm-gutterElement': { textAlign: 'end', paddingInline: '4px 8px', color: 'var(--allow)' },
  '.cm-notes .quiet': { color: 'var(--muted)', fontStyle: 'italic' },
  '.cm-matchingBracket, &.cm-focused .cm-matchingBracket': { backgroundColor: 'var(--accent-soft)' },
  '.cm-tooltip': {
    backgroundColor: 'var(--panel)',
    border: '1px solid var(--line)',
    borderRadius: '6px',
    color: 'var(--text)',
    overflow: 'hidden',
  },
  '.cm-tooltip.cm-tooltip-autocomplete > ul > li': { padding: '3px 8px', lineHeight: '1.5' },
  '.cm-tooltip.cm-tooltip-autocomplete > ul > li[aria-selected]': {
    backgroundColor: 'var(--accent)',
    color: 'var(--on-accent)',
  },
  '.cm-completionDetail': { marginInlineStart: '1.2em', fontStyle: 'normal', opacity: '0.8' },
  '.cm-completionInfo': { padding: '6px 10px', maxWidth: '340px', fontFamily: 'system-ui', fontSize: '13px' },
  '.cm-diagnostic': { padding: '6px 10px', fontFamily: 'system-ui', fontSize: '13px' },
  '.cm-diagnostic-error': { borderLeft: '3px solid var(--deny)' },
  '.cm-diagnostic-warning': { borderLeft: '3px solid var(--audit)' },
});

const extensions = [
  lineNumbers(),
  lintGutter(),
  history(),
  drawSelection(),
  indentOnInput(),
  indentUnit.of('  '),
  bracketMatching(),
  highlightActiveLine(),
  yaml(),
  syntaxHighlighting(colors),
  markedField,
  theme,
  keymap.of([...defaultKeymap, ...historyKeymap, ...lintKeymap]),
];
