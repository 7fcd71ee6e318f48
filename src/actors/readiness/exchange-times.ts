import type { Bus } from '#bus/bus.js';
import type { AnswerMessage, Exchange, Message, RequestMessage } from '#bus/bus-messages.js';

export type ExchangeDone = {
  readonly exchange: Exchange;
  /** The kind of the response, such as `staged`; the refusal code if the response is a refusal. */
  readonly outcome: string;
  readonly seconds: number;
};

/**
 * The maximum number of pending requests with a recorded start time. At this number, all start times are
 * discarded. So the memory is bounded even if responses get lost.
 */
const MAX_UNDER_WAY = 1_000;

/**
 * Calls `onDone` for each response on the bus, with the number of seconds since its request was published.
 */
export function timeExchanges({ messages }: Bus<Message>, onDone: (done: ExchangeDone) => void): void {
  const begun = new Map<string, number>();
  messages.subscribe((message) => {
    if (isRequest(message)) {
      if (begun.size >= MAX_UNDER_WAY) begun.clear();
      begun.set(message.id, performance.now());
    } else if (isAnswer(message)) {
      const at = begun.get(message.id);
      if (at === undefined) return;
      begun.delete(message.id);
      const { outcome } = message;
      onDone({
        exchange: message.type.slice(0, -'_answered'.length) as Exchange,
        outcome: outcome.kind === 'refused' ? outcome.code : outcome.kind,
        seconds: (performance.now() - at) / 1_000,
      });
    }
  });
}

const isRequest = (message: Message): message is RequestMessage =>
  'id' in message && message.type.endsWith('_requested');
const isAnswer = (message: Message): message is AnswerMessage => 'id' in message && message.type.endsWith('_answered');
