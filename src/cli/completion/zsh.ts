import type { CommandShape } from '../command-shape.js';
import { candidatesOf, flagsOfNode, flagsThatTake, quoted, values } from './candidates.js';
import { completed } from './completed.js';
import { COMPLETE } from './values.js';

/** Returns a script that completes the `weir` command in zsh, with a description of each word. */
export function zshCompletion(program: CommandShape): string {
  const commands = completed(program);
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
# Completes weir in zsh, behind compinit: source <(weir completion zsh)
_weir() {
  local at=weir kind='' cur=$PREFIX prev=\${words[CURRENT - 1]} i
  local -a entries offered
  if [[ $cur == --*=* ]]; then
    prev=\${cur%%=*} cur=\${cur#*=}
    compset -P 1 '*='
  fi
  for ((i = 2; i < CURRENT; i++)); do
    case "$at \${words[i]}" in
    ${below.join(' | ')}) at="$at \${words[i]}" ;;
    esac
  done
  case "$at $prev" in
${chosen.join('\n')}
${asked.join('\n')}
    ${flagsThatTake(commands, 'file').map(quoted).join(' | ')})
      if [[ $cur != -* ]]; then _files; return; fi
      ;;
    ${flagsThatTake(commands, 'text').map(quoted).join(' | ')}) return ;;
  esac
  if [[ -n $kind && $cur != -* ]]; then
    offered=(\${(f)"$("\${words[1]}" ${COMPLETE} $kind -- "\${(@)words[2,CURRENT - 1]}" "$cur" 2>/dev/null </dev/null)"})
    compadd -- $offered
    return
  fi
  case "$at" in
${described.join('\n')}
  esac
  _describe weir entries
}
# As a file of $fpath it is run where it is first needed.
if [[ \${funcstack[1]} == _weir ]]; then _weir "$@"; else compdef _weir weir; fi
`;
}
