#!/bin/bash
# Stands in for a service program. It reads the name of its ready file from the YAML that --config names, writes that
# file, and runs until SIGTERM. A file BIN_DIR/behaviour.NODE changes that: "die" (exits with 3 immediately),
# "stubborn" (ignores SIGTERM), "mute" (is never ready).
config=$2
value() { sed -n "s/.*$1: \"\\(.*\\)\"/\\1/p" "$config" | head -1; }
node=$(value node_id)
ready=$(value ready_file)
behaviour=$(cat "$(dirname "$0")/behaviour.$node" 2>/dev/null)
echo "{\"level\":\"info\",\"message\":\"$node starts\"}"
case $behaviour in
  die) echo '{"level":"error","message":"the port is taken"}' >&2; exit 3 ;;
  stubborn) trap '' TERM ;;
  *) trap 'echo "$(value node_id)" >> "$(dirname "$0")/ended"; exit 0' TERM ;;
esac
if [ "$behaviour" != mute ]; then
  listen=$(value listen)
  [ "$listen" = 127.0.0.1:0 ] && listen=127.0.0.1:$((20000 + $$ % 10000))
  echo "{\"pid\":$$,\"address\":\"$listen\",\"metrics_address\":\"127.0.0.1:1\"}" > "$ready.new"
  mv "$ready.new" "$ready"
fi
while true; do sleep 0.05; done
