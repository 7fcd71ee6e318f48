import { type CommandShape, everyCommand } from '../command-shape.js';
import { COMPLETE, candidatesOf, flagsOfNode, flagsThatTake, quoted, values } from './candidates.js';

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
  const asked = flagsOfNode(commands).map(({ kind, flags }) => `    ${flags.map(quoted).join(' | ')}) kind=${kind} ;;`);
  return `#compdef weir
# Completes weir in zsh: source <(weir completion zsh)
_weir() {
  local at=weir kind='' i
  local -a entries offered
  for ((i = 2; i < CURRENT; i++)); do
    case "$at \${words[i]}" in
    ${below.join(' | ')}) at="$at \${words[i]}" ;;
    esac
  done
  case "$at \${words[CURRENT - 1]}" in
${chosen.join('\n')}
${asked.join('\n')}
    ${flagsThatTake(commands, 'file').map(quoted).join(' | ')})
      if [[ \${words[CURRENT]} != -* ]]; then _files; return; fi
      ;;
    ${flagsThatTake(commands, 'text').map(quoted).join(' | ')}) return ;;
  esac
  if [[ -n $kind && \${words[CURRENT]} != -* ]]; then
    offered=(\${(f)"$("\${words[1]}" ${COMPLETE} $kind -- "\${(@)words[2,CURRENT]}" 2>/dev/null </dev/null)"})
    compadd -- $offered
    return
  fi
  case "$at" in
${described.join('\n')}
  esac
  _describe weir entries
}
compdef _weir weir
`;
}
