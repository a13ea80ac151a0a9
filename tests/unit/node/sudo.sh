#!/bin/sh
# Behaves like sudo as far as the agent can tell; runs the command as the same user.
prompt="[sudo] password for me: " ask=yes
while [ $# -gt 0 ]; do
    case $1 in
    -n) ask=no; shift ;;
    -S) shift ;;
    -p) prompt=$2; shift 2 ;;
    --) shift; break ;;
    *) break ;;
    esac
done
echo "$*" >>"$SUDO_STUB/ran"
mode=$(cat "$SUDO_STUB/mode")
if [ "$mode" = nopasswd ]; then STUB_ROOT=yes exec "$@"; fi
if [ $ask = no ]; then echo "sudo: a password is required" >&2; exit 1; fi
if [ "$mode" = stranger ]; then echo "me is not in the sudoers file." >&2; exit 1; fi
if [ "$mode" = silent ]; then sleep 60; fi
for _ in 1 2 3; do
    printf %s "$prompt" >&2
    IFS= read -r line || { echo "sudo: no password was provided" >&2; exit 1; }
    printf '%s\n' "$line" >>"$SUDO_STUB/tried"
    tr '\0' ' ' </proc/$$/cmdline >>"$SUDO_STUB/seen"; tr '\0' ' ' </proc/$$/environ >>"$SUDO_STUB/seen"
    if [ "$line" = "$(cat "$SUDO_STUB/password")" ]; then STUB_ROOT=yes SUDO_PROMPT=$prompt exec "$@"; fi
    cat "$SUDO_STUB/again" >&2
done
echo "sudo: 3 incorrect password attempts" >&2
exit 1
