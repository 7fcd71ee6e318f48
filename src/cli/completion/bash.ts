import type { CommandShape } from '../command-shape.js';
import { candidatesOf, casePattern, nodeValueCases, pathLoop, quoted, values } from './candidates.js';
import { completed } from './completed.js';
import { COMPLETE } from './values.js';

/** Returns a script that completes the `weir` command in bash 4 and later. */
export function bashCompletion(program: CommandShape): string {
  const commands = completed(program);
  const words = commands.map(
    (command) =>
      `    ${quoted(command.path)}) words=${quoted(
        candidatesOf(command)
          .map(({ word }) => word)
          .join(' '),
      )} ;;`,
  );
  const chosen = values(commands).map(
    ({ path, flag, choices }) => `    ${quoted(`${path} ${flag}`)}) words=${quoted(choices.join(' '))} ;;`,
  );
  return `# Completes weir in bash: eval "$(weir completion bash)"
_weir() {
  local at=weir words='' kind='' rest=$COMP_LINE cur prev last i value
  local -a line=()
  COMPREPLY=()
  # Readline breaks words at = and : too, as in --group=NAME and in a URL.
  for ((i = 0; i <= COMP_CWORD; i++)); do
    value=\${COMP_WORDS[i]} last=$((\${#line[@]} - 1))
    if ((i == 0)) || [[ $rest == [[:blank:]]* ]]; then line+=("$value"); else line[last]+=$value; fi
    rest=\${rest#*"$value"}
  done
  last=$((\${#line[@]} - 1)) cur=\${line[last]} prev=\${line[last - 1]}
  if [[ $cur == --*=* ]]; then prev=\${cur%%=*} cur=\${cur#*=}; fi
  ${pathLoop(commands, 'line', 1, 'last')}
  case "$at $prev" in
${chosen.join('\n')}
${nodeValueCases(commands)}
    ${casePattern(commands, 'file')})
      if [[ $cur != -* ]]; then
        compopt -o filenames 2>/dev/null
        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
        return
      fi
      ;;
    ${casePattern(commands, 'text')}) return ;;
  esac
  if [[ -n $kind && $cur != -* ]]; then
    while IFS= read -r value; do
      COMPREPLY+=("$(printf '%q' "$value")")
    done < <("\${line[0]}" ${COMPLETE} "$kind" -- "\${line[@]:1:last - 1}" "$cur" 2>/dev/null </dev/null)
    return
  fi
  [[ -n $words ]] || case "$at" in
${words.join('\n')}
  esac
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
}
complete -F _weir weir
`;
}
