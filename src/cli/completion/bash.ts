import { type CommandShape, everyCommand } from '../command-shape.js';
import { COMPLETE, candidatesOf, flagsOfNode, flagsThatTake, quoted, values } from './candidates.js';

/** A script that completes `weir` in bash 4 and later. */
export function bashCompletion(program: CommandShape): string {
  const commands = everyCommand(program);
  const below = commands.slice(1).map(({ path }) => quoted(path));
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
  const asked = flagsOfNode(commands).map(({ kind, flags }) => `    ${flags.map(quoted).join(' | ')}) kind=${kind} ;;`);
  return `# Completes weir in bash: eval "$(weir completion bash)"
_weir() {
  local cur=\${COMP_WORDS[COMP_CWORD]} prev=\${COMP_WORDS[COMP_CWORD - 1]} at=weir words='' kind='' i value
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "$at \${COMP_WORDS[i]}" in
    ${below.join(' | ')}) at="$at \${COMP_WORDS[i]}" ;;
    esac
  done
  case "$at $prev" in
${chosen.join('\n')}
${asked.join('\n')}
    ${flagsThatTake(commands, 'file').map(quoted).join(' | ')})
      if [[ $cur != -* ]]; then
        compopt -o filenames 2>/dev/null
        mapfile -t COMPREPLY < <(compgen -f -- "$cur")
        return
      fi
      ;;
    ${flagsThatTake(commands, 'text').map(quoted).join(' | ')}) return ;;
  esac
  if [[ -n $kind && $cur != -* ]]; then
    while IFS= read -r value; do
      COMPREPLY+=("$(printf '%q' "$value")")
    done < <("\${COMP_WORDS[0]}" ${COMPLETE} "$kind" -- "\${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null </dev/null)
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
