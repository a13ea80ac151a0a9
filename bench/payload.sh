# About 3 KB of sh that prints about 4 KB of JSON: the same little "facts" for every tool of the bench.
# It reads what every Linux machine has, with few forks, so that the transport is what is measured.
say() {
    printf '"%s": "%s",\n' "$1" "$2"
}

first_line() {
    if [ -r "$1" ]; then
        IFS= read -r line <"$1"
        printf '%s' "$line"
    fi
}

field_of() { # the value of a KEY: VALUE file
    while IFS=: read -r key value; do
        if [ "$key" = "$2" ]; then
            printf '%s' "${value# }"
            return
        fi
    done <"$1"
}

os_value() { # the value of KEY="VALUE" in os-release
    while IFS== read -r key value; do
        if [ "$key" = "$1" ]; then
            value=${value#\"}
            printf '%s' "${value%\"}"
            return
        fi
    done </etc/os-release
}

interfaces() {
    for path in /sys/class/net/*; do
        name=${path##*/}
        printf '{"name": "%s", "state": "%s", "mtu": "%s", "address": "%s"},\n' \
            "$name" "$(first_line "$path/operstate")" "$(first_line "$path/mtu")" "$(first_line "$path/address")"
    done
}

limits() {
    while IFS= read -r line; do
        case $line in
        "Max open files"* | "Max processes"* | "Max locked memory"* | "Max stack size"*)
            printf '"%s",\n' "$line"
            ;;
        esac
    done </proc/self/limits
}

modules() {
    [ -r /proc/modules ] || return
    count=0
    while read -r name size used _; do
        count=$((count + 1))
        [ "$count" -gt 20 ] && break
        printf '{"module": "%s", "bytes": %s, "used": %s},\n' "$name" "$size" "$used"
    done </proc/modules
}

memory() {
    count=0
    while IFS=: read -r key value; do
        count=$((count + 1))
        [ "$count" -gt 40 ] && break
        printf '"%s": "%s",\n' "$key" "${value##*( )}"
    done </proc/meminfo
}

mounts() {
    count=0
    while read -r device mount type _; do
        count=$((count + 1))
        [ "$count" -gt 15 ] && break
        printf '{"device": "%s", "mount": "%s", "type": "%s"},\n' "$device" "$mount" "$type"
    done </proc/mounts
}

printf '{"probe": 1,\n'
say hostname "$(first_line /proc/sys/kernel/hostname)"
say kernel "$(first_line /proc/sys/kernel/osrelease)"
say version "$(first_line /proc/version)"
say boot_id "$(first_line /proc/sys/kernel/random/boot_id)"
say uptime "$(first_line /proc/uptime)"
say load "$(first_line /proc/loadavg)"
say os "$(os_value ID)"
say os_version "$(os_value VERSION_ID)"
say os_name "$(os_value PRETTY_NAME)"
say cmdline "$(first_line /proc/cmdline)"
say memory_total "$(field_of /proc/meminfo MemTotal)"
say cpus "$(first_line /sys/devices/system/cpu/online)"
say home "$HOME"
say user "$LOGNAME"
say shell "$SHELL"
printf '"interfaces": [%s null],\n' "$(interfaces)"
printf '"limits": [%s null],\n' "$(limits)"
printf '"modules": [%s null],\n' "$(modules)"
printf '"memory": {%s "end": 1},\n' "$(memory)"
printf '"mounts": [%s null]}\n' "$(mounts)"
