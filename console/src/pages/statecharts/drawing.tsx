import { type ReadonlySignal, type Signal, useSignal } from '@preact/signals';
import type { ComponentChildren } from 'preact';
import { useEffect, useLayoutEffect, useMemo, useRef } from 'preact/hooks';
import { type Box, type Layout, LEAF_HEIGHT, labelOf, layOut } from './layout.js';
import { type Arrow, arrowsFrom, type Chart, outward, type State } from './model.js';
import { pathOf, Router } from './routes.js';

const FONT_PX = 12.5;
/** The smallest width in CSS pixels. On a narrower page, the drawing is scrolled. */
const LEAST_WIDTH = 260;
/** The sum of the left and right padding of the frame, in CSS pixels. */
const FRAME_PAD = 10;
/** The scales to try, the largest first. A small chart is drawn larger. */
const SCALES = [1.25, 1.15, 1.08, 1];
const RADIUS = 5;
const TIP = 6;
/** A transition is highlighted for this time after the actor took it, in milliseconds. */
const TAKEN_MS = 1_600;
/**
 * The maximum number of arrows from active states. A chart with more of them shows only the arrows of the
 * state under the pointer.
 */
const MOST_ARROWS = 60;

export type Pair = { readonly from: string; readonly to: string };
/** Transitions that an actor took, and the time when the page received them (`performance.now()`). */
export type Taken = { readonly pairs: readonly Pair[]; readonly entered: readonly string[]; readonly at: number };

type Props = {
  readonly chart: Chart;
  readonly active: readonly State[];
  readonly taken: readonly Taken[];
  /** The state that has the mouse pointer or the keyboard focus. */
  readonly pointed: Signal<State | null>;
  /** The transition that has the mouse pointer in the list beside the drawing. */
  readonly arrow: ReadonlySignal<Arrow | null>;
  /** Whether inactive states hide their inner states. Null: only if the chart would be too high otherwise. */
  readonly fold: Signal<boolean | null>;
  readonly onPick: (state: State) => void;
  readonly picked: State | null;
};

/**
 * Draws a complete statechart: nested boxes for states, and arrows from the active states and from the state
 * under the pointer.
 */
export function Drawing({ chart, active, taken, pointed, arrow, fold, onPick, picked }: Props) {
  const frame = useRef<HTMLDivElement>(null);
  const room = useRoom(frame);
  const opened = useSignal<ReadonlySet<string>>(new Set());
  const activeIds = active.map(({ id }) => id).join(' ');
  const { layout, isFolding, scale } = useMemo(
    () => fitted(chart, new Set(activeIds.split(' ')), room.value, fold.value, opened.value),
    [chart, activeIds, room.value, fold.value, opened.value],
  );
  const boxes = useMemo(() => new Map(layout.boxes.map((box) => [box.state.id, box])), [layout]);
  const now = useExpiry(taken);
  const trail = taken.filter(({ at }) => now - at < TAKEN_MS);
  const shownArrow = arrow.value;
  const focused = pointed.value ?? picked;
  const lit = useRoutes(layout, boxes, chart, activeIds, null);
  const from = useRoutes(layout, boxes, chart, focused === null ? '' : focused.id, focused);
  const targets = new Set((focused === null ? lit : from).map(({ to }) => to));
  const pick = (box: Box) => {
    if (box.isFolded) opened.value = new Set([...opened.value, box.state.id]);
    onPick(box.state);
  };
  const zoom = (element: HTMLElement | null) => {
    if (element === null) return;
    element.style.zoom = String(scale);
    size(element);
  };
  const size = (element: HTMLElement | SVGSVGElement | null) => {
    if (element === null) return;
    element.style.width = `${layout.width}px`;
    element.style.height = `${layout.height}px`;
  };
  return (
    <div class="chart-frame" ref={frame} data-folds={isFolding}>
      <div class="chart" ref={zoom}>
        <States
          states={chart.root.children}
          {...{ boxes, chart, pointed, targets, pick, picked }}
          active={new Set(active)}
          entered={new Set(trail.flatMap(({ entered }) => entered))}
        />
        <svg class="arrows" ref={size} aria-hidden="true" viewBox={`0 0 ${layout.width} ${layout.height}`}>
          <defs>
            {['lit', 'from', 'taken'].map((kind) => (
              <marker
                key={kind}
                id={`tip-${kind}`}
                class={`tip ${kind}`}
                viewBox="0 0 8 8"
                refX="1"
                refY="4"
                markerWidth={TIP + 1}
                markerHeight={TIP + 1}
                markerUnits="userSpaceOnUse"
                orient="auto"
              >
                <path d="M0 0 8 4 0 8Z" />
              </marker>
            ))}
          </defs>
          <g class={focused === null && shownArrow === null ? '' : 'behind'}>
            {lit.map((route) => (
              <path key={`${route.from} ${route.to}`} class="lit" d={route.d} marker-end="url(#tip-lit)" />
            ))}
          </g>
          {from.map((route) => (
            <path key={`from ${route.from} ${route.to}`} class="from" d={route.d} marker-end="url(#tip-from)" />
          ))}
          <Extra pairs={pairsOf(shownArrow)} kind="from" {...{ layout, boxes }} />
          {trail.map(({ pairs, at }) => (
            <Extra key={at} pairs={pairs} kind="taken" {...{ layout, boxes }} />
          ))}
        </svg>
      </div>
    </div>
  );
}

const pairsOf = (arrow: Arrow | null): readonly Pair[] =>
  arrow === null ? [] : arrow.targets.map((to) => ({ from: arrow.source, to }));

type Drawn = Pair & { readonly d: string };

/**
 * Computes the routes of the arrows that leave states. `only`: compute only the arrows of this state and of
 * its outer states.
 */
function useRoutes(
  layout: Layout,
  boxes: ReadonlyMap<string, Box>,
  chart: Chart,
  sources: string,
  only: State | null,
): readonly Drawn[] {
  return useMemo(() => {
    const ids = sources.split(' ');
    const arrows = only === null ? chart.arrows.filter(({ source }) => ids.includes(source)) : arrowsFrom(chart, only);
    const pairs = arrows.flatMap(pairsOf);
    return pairs.length > MOST_ARROWS ? [] : routed(pairs, layout, boxes);
  }, [layout, boxes, chart, sources, only]);
}

function routed(pairs: readonly Pair[], layout: Layout, boxes: ReadonlyMap<string, Box>): readonly Drawn[] {
  const router = new Router(layout);
  const unique = new Map(pairs.map((pair) => [`${pair.from} ${pair.to}`, pair]));
  return [...unique.values()].flatMap((pair) => {
    const [from, to] = [boxes.get(pair.from), boxes.get(pair.to)];
    if (from === undefined || to === undefined || from === to) return [];
    const points = router.route(from, to);
    return points === null ? [] : [{ ...pair, d: pathOf(points, RADIUS, TIP) }];
  });
}

type ExtraProps = {
  readonly pairs: readonly Pair[];
  readonly kind: 'from' | 'taken';
  readonly layout: Layout;
  readonly boxes: ReadonlyMap<string, Box>;
};

/** Draws arrows on top of all other arrows. */
function Extra({ pairs, kind, layout, boxes }: ExtraProps) {
  const key = pairs.map(({ from, to }) => `${from} ${to}`).join();
  const drawn = useMemo(() => routed(pairs, layout, boxes), [key, layout, boxes]);
  return (
    <>
      {drawn.map(({ from, to, d }) => (
        <path key={`${from} ${to}`} class={`${kind} strong`} d={d} marker-end={`url(#tip-${kind})`} />
      ))}
    </>
  );
}

type StatesProps = {
  readonly states: readonly State[];
  readonly boxes: ReadonlyMap<string, Box>;
  readonly chart: Chart;
  readonly active: ReadonlySet<State>;
  readonly entered: ReadonlySet<string>;
  readonly targets: ReadonlySet<string>;
  readonly pointed: Signal<State | null>;
  readonly picked: State | null;
  readonly pick: (box: Box) => void;
};

/** Renders the boxes as a nested list, so that a screen reader reads the hierarchy of the states. */
function States({ states, ...props }: StatesProps) {
  return (
    <ul>
      {states.map((state) => (
        <StateBox key={state.id} {...{ state }} {...props} />
      ))}
    </ul>
  );
}

function StateBox({ state, ...props }: Omit<StatesProps, 'states'> & { readonly state: State }): ComponentChildren {
  const { boxes, active, entered, targets, pointed, picked, pick } = props;
  const box = boxes.get(state.id);
  if (box === undefined) return null;
  const isActive = active.has(state);
  const isLeaf = state.children.length === 0 || box.isFolded;
  const classes = [
    'state',
    isLeaf ? 'leaf' : 'nested',
    ...(isActive ? ['active'] : []),
    ...(entered.has(state.id) ? ['entered'] : []),
    ...(targets.has(state.id) ? ['target'] : []),
    ...(picked === state ? ['picked'] : []),
    ...(state.parent?.type === 'parallel' ? ['region'] : []),
    ...(state.type === 'final' ? ['final'] : []),
  ];
  const place = (element: HTMLElement | null) => {
    if (element === null) return;
    element.style.transform = `translate(${box.x}px, ${box.y}px)`;
    element.style.width = `${box.width}px`;
    element.style.height = `${box.height}px`;
  };
  const point = (on: boolean) => () => {
    if (on) pointed.value = state;
    else if (pointed.value === state) pointed.value = null;
  };
  const first = [...active].find(({ children }) => children.length === 0) ?? null;
  return (
    <li>
      <div class={classes.join(' ')} ref={place} data-state={state.id}>
        <button
          type="button"
          aria-current={isActive ? 'true' : undefined}
          aria-expanded={state.children.length === 0 ? undefined : !box.isFolded}
          tabIndex={(picked ?? first) === state ? 0 : -1}
          onClick={() => pick(box)}
          onPointerEnter={point(true)}
          onPointerLeave={point(false)}
          onFocus={point(true)}
          onBlur={point(false)}
          onKeyDown={moveFocus}
        >
          {labelOf(state, box.isFolded)}
        </button>
      </div>
      {!isLeaf && <States states={state.children} {...props} />}
    </li>
  );
}

const DIRECTIONS: Readonly<Record<string, readonly [number, number]>> = {
  ArrowRight: [1, 0],
  ArrowLeft: [-1, 0],
  ArrowDown: [0, 1],
  ArrowUp: [0, -1],
};

/** Moves the focus to the nearest state in the direction of an arrow key. */
function moveFocus(event: KeyboardEvent): void {
  const direction = DIRECTIONS[event.key];
  const from = event.currentTarget as HTMLElement;
  const chart = from.closest('.chart');
  if (direction === undefined || chart === null) return;
  event.preventDefault();
  const [dx, dy] = direction;
  const middle = (element: Element) => {
    const { left, top, width, height } = element.getBoundingClientRect();
    return { x: left + width / 2, y: top + height / 2 };
  };
  const start = middle(from);
  const distances = [...chart.querySelectorAll('button')].flatMap((to) => {
    const { x, y } = middle(to);
    const along = (x - start.x) * dx + (y - start.y) * dy;
    const across = Math.abs((x - start.x) * dy) + Math.abs((y - start.y) * dx);
    // Consider only boxes in the direction of the key that are more ahead than to the side.
    return to === from || along < 4 || across > along * 3 ? [] : [{ to, distance: along + 2 * across }];
  });
  distances.toSorted((one, other) => one.distance - other.distance)[0]?.to.focus();
}

type Room = { readonly width: number; readonly height: number };

/** Returns the width of the drawing, and the height of the window below its top. */
function useRoom(frame: { readonly current: HTMLDivElement | null }): ReadonlySignal<Room> {
  const room = useSignal<Room>({ width: 0, height: 0 });
  useLayoutEffect(() => {
    const element = frame.current;
    if (element === null) return;
    const measure = () => {
      const top = element.getBoundingClientRect().top + scrollY;
      const width = Math.floor(element.clientWidth) - FRAME_PAD;
      const height = Math.floor(innerHeight - top - 30);
      if (room.value.width !== width || room.value.height !== height) room.value = { width, height };
    };
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    addEventListener('resize', measure);
    return () => {
      observer.disconnect();
      removeEventListener('resize', measure);
    };
  }, [frame]);
  return room;
}

const pen = document.createElement('canvas').getContext('2d');
function textWidth(text: string): number {
  if (pen === null) return text.length * 7;
  pen.font = `600 ${FONT_PX}px system-ui, -apple-system, "Segoe UI", "Noto Sans", sans-serif`;
  return pen.measureText(text).width + 2;
}

type Fitted = { readonly layout: Layout; readonly isFolding: boolean; readonly scale: number };

/**
 * Selects the largest scale at which the chart fits. If the whole chart does not fit, inactive states hide
 * their inner states.
 */
function fitted(
  { root }: Chart,
  active: ReadonlySet<string>,
  { width, height }: Room,
  fold: boolean | null,
  opened: ReadonlySet<string>,
): Fitted {
  const isInactive = (state: State) => !active.has(state.id) && ![...outward(state)].some(({ id }) => opened.has(id));
  const isShown = () => false;
  for (const isFolding of fold === null ? [false, true] : [fold])
    for (const scale of SCALES) {
      const isFolded = isFolding ? isInactive : isShown;
      const layout = layOut(root, Math.max(LEAST_WIDTH, width / scale), { textWidth, isFolded });
      const fits = layout.height * scale <= Math.max(height, LEAF_HEIGHT * 10) && layout.width * scale <= width;
      const isLast = scale === 1 && (isFolding || fold !== null);
      if (fits || isLast) return { layout, isFolding, scale };
    }
  throw new Error('choose the scale of a statechart: the list of scales is empty');
}

/** Returns the present time. Renders the component again when the highlight of a transition ends. */
function useExpiry(taken: readonly Taken[]): number {
  const time = useSignal(0);
  const latest = taken.at(-1)?.at ?? 0;
  useEffect(() => {
    if (latest === 0) return;
    const timer = setTimeout(
      () => {
        time.value = performance.now();
      },
      Math.max(0, latest + TAKEN_MS - performance.now()) + 20,
    );
    return () => clearTimeout(timer);
  }, [latest]);
  void time.value;
  return performance.now();
}
