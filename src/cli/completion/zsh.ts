import { type CommandShape, everyCommand } from '../command-shape.js';
import { candidatesOf, flagsThatTake, quoted, values } from './candidates.js';

/** A script that completes `weir` in zsh, with what each word does. */
export function zshCompletion(program: CommandShape): string {
  const commands = everyCommand(program);
  const below = commands.slice(1).map(({ path }) => quoted(path));
  const described = commands.map((command) => {
    const entries = candidatesOf(command).map(({ word, about }) => quoted(`${word}:${about}`));
    return `    ${quoted(command.path)}) entries=(${entries.join(' ')}) ;;`;
  });
  const chosen = values(commands).map(
    ({ path, flag, choices }) => `    ${quoted(`${path} ${flag}`)}) compadd -- ${choices.join(' ')}; return ;;`,
  );
  return `#compdef weir
# Completes weir in zsh: source <(weir completion zsh)
_weir() {
  local at=weir i
  local -a entries
  for ((i = 2; i < CURRENT; i++)); do
    case "$at \${words[i]}" in
    ${below.join(' | ')}) at="$at \${words[i]}" ;;
    esac
  done
  case "$at \${words[CURRENT - 1]}" in
${chosen.join('\n')}
    ${flagsThatTake(commands, 'file').map(quoted).join(' | ')})
      if [[ \${words[CURRENT]} != -* ]]; then _files; return; fi
      ;;
    ${flagsThatTake(commands, 'text').map(quoted).join(' | ')}) return ;;
  esac
  case "$at" in
${described.join('\n')}
  esac
  _describe weir entries
}
compdef _weir weir
`;
}
