import type { CommandShape } from '../command-shape.js';
import { candidatesOf, casePattern, nodeValueCases, pathLoop, quoted, values } from './candidates.js';
import { completed } from './completed.js';
import { COMPLETE } from './values.js';

export function zshCompletion(program: CommandShape): string {
  const commands = completed(program);
  const described = commands.map((command) => {
    const entries = candidatesOf(command).map(({ word, about }) => quoted(`${word}:${about}`));
    return `    ${quoted(command.path)}) entries=(${entries.join(' ')}) ;;`;
  });
  const chosen = values(commands).map(
    ({ path, flag, choices }) => `    ${quoted(`${path} ${flag}`)}) compadd -- ${choices.join(' ')}; return ;;`,
  );
  return `#compdef weir
# Completes weir in zsh, behind compinit: source <(weir completion zsh)
_weir() {
  local at=weir kind='' cur=$PREFIX prev=\${words[CURRENT - 1]} i
  local -a entries offered
  if [[ $cur == --*=* ]]; then
    prev=\${cur%%=*} cur=\${cur#*=}
    compset -P 1 '*='
  fi
  ${pathLoop(commands, 'words', 2, 'CURRENT')}
  case "$at $prev" in
${chosen.join('\n')}
${nodeValueCases(commands)}
    ${casePattern(commands, 'file')})
      if [[ $cur != -* ]]; then _files; return; fi
      ;;
    ${casePattern(commands, 'text')}) return ;;
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
