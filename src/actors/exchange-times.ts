import type { Bus } from '#bus/bus.js';
import type { AnswerMessage, Exchange, Message, RequestMessage } from '#bus/bus-messages.js';

export type ExchangeDone = {
  readonly exchange: Exchange;
  /** The kind of the outcome; for a refusal, its code. */
  readonly outcome: string;
  readonly seconds: number;
};

/** Upper bound of the requests under way. The oldest request without an answer is dropped. */
const MOST_UNDER_WAY = 1_000;

/** Reports how long each request on the bus took. */
export function timeExchanges({ messages }: Bus<Message>, onDone: (done: ExchangeDone) => void): void {
  const begun = new Map<string, number>();
  messages.subscribe((message) => {
    if (isRequest(message)) {
      if (begun.size >= MOST_UNDER_WAY) begun.clear();
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
