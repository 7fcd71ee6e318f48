import { filter, firstValueFrom, type Observable, ReplaySubject, type Subscription, timeout } from 'rxjs';
import type { ObjectMessage } from '#kubernetes/watch/objects.js';
import type { PhaseMessage } from '#kubernetes/watch/reflector.js';

type Message<Kept> = ObjectMessage<Kept> | PhaseMessage;

/** The messages of a reflector, and the objects that they lead to. */
export class Recording<Kept extends { readonly uid: string }> {
  readonly messages: Message<Kept>[] = [];
  objects = new Map<string, Kept>();
  readonly #replay = new ReplaySubject<Message<Kept>>();
  readonly #subscription: Subscription;

  constructor(messages: Observable<Message<Kept>>) {
    this.#subscription = messages.subscribe({
      next: (message) => {
        this.messages.push(message);
        this.#apply(message);
        this.#replay.next(message);
      },
      error: (failure: unknown) => this.#replay.error(failure),
    });
  }

  get phases(): readonly string[] {
    return this.messages.filter((message) => message.type === 'phase').map(({ phase }) => phase);
  }

  get lists(): number {
    return this.messages.filter(({ type }) => type === 'listed').length;
  }

  /** Returns the first message that `isMeant` accepts. Waits for it if it has not been received yet. */
  async until(isMeant: (message: Message<Kept>) => boolean, withinMs = 60_000): Promise<Message<Kept>> {
    return firstValueFrom(this.#replay.pipe(filter(isMeant), timeout(withinMs)));
  }

  async untilPhase(meant: string, withinMs?: number): Promise<PhaseMessage> {
    return (await this.until((each) => each.type === 'phase' && each.phase === meant, withinMs)) as PhaseMessage;
  }

  end(): void {
    this.#subscription.unsubscribe();
  }

  #apply(message: Message<Kept>): void {
    if (message.type === 'listed') this.objects = new Map(message.objects.map((object) => [object.uid, object]));
    else if (message.type === 'changed') this.objects.set(message.object.uid, message.object);
    else if (message.type === 'deleted') this.objects.delete(message.uid);
  }
}
