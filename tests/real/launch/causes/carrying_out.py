"""Carries out the fix of a cause, word by word as preflight prints it."""

import re
import sys

from ClusterShell.NodeSet import NodeSet


def carry_out(fix, nodes, job):
    """Carry out ``fix``, which concerns ``nodes``; `AssertionError` for one that leaves open what to do."""
    for pattern, action in ACTIONS.items():
        if match := re.fullmatch(pattern, fix):
            action(job, nodes, *match.groups())
            return
    raise AssertionError(f"nobody can carry this out as it stands: {fix}")


def put(job, nodes, path):
    job.hosts.copy(path, nodes)


def run_there(job, nodes, command, place):
    for node in nodes if place in ("these nodes", "this node") else [place]:
        job.hosts.run(f"{job.hosts.pip_settings} {command}", node)


def add_line(job, nodes, line, file):
    for node in nodes:
        job.hosts.run(f"echo '{line}' >>{file}", node)


def render_again(job, _nodes, options):
    job.render(options)


def set_option(job, _nodes, option):
    job.options += option.split()


def trust(job, _nodes, words):
    job.hosts.run(f"{sys.executable} -m gpuops {words} --yes")


def edit_option(job, _nodes, name, value, file, line):
    """Give an option of the launcher another value, in a line of a script beside the hosts."""
    job.hosts.run(f"sed -i -E '{line}s#{name}=[^ ]*#{name}={value}#' /run/job/{file}")


def edit_text(job, _nodes, new, old, file, line):
    job.hosts.run(f"sed -i '{line}s#{old}#{new}#' /run/job/{file}")


def remove_text(job, nodes, text, file, line):
    edit_text(job, nodes, "", text, file, line)


def edit_variable(job, _nodes, files, line, name, value):
    """Give a variable that scripts export another value; ``files`` may be folded."""
    for file in NodeSet(files):
        job.hosts.run(f"sed -i -E '{line}s#^export {name}=[^ ]*#export {name}={value}#' /run/job/{file}")


def correct_route(job, _nodes, address, node):
    job.hosts.run(f"ip route show to match {address} | grep unreachable && ip route del unreachable {address}", node)


def raise_mtu(job, nodes):
    job.hosts.run(f"ip link set port-{nodes[0]} mtu 1500")


def delete_files(job, nodes, place):
    for node in nodes:
        job.hosts.run(f"rm {place}/left", node)


def bring_back(job, nodes):
    for node in nodes:
        job.hosts.run(f"/usr/sbin/sshd -f {job.hosts.state}/user_sshd_config -E /run/user_sshd.log", node)


ACTIONS = {
    r"put (\S+) on these nodes, or name (?:one that all have(?: with --workdir)?|another one in \S+)": put,
    r"put (\S+) of n1 on these nodes": put,
    r"render the files again with (.*)": render_again,
    r"ip route get (\S+)   on (n\d); then correct that route, or the firewall of n\d": correct_route,
    r"raise the MTU of the switches between them, or lower that of the nodes": raise_mtu,
    r"delete files in (\S+) that nothing needs any more": delete_files,
    r"bring the node back, or remove it from the job": bring_back,
    r"compare its host key on its console, then gpuops (.*)": trust,
    r"(.*?)   on (these nodes|this node|n\d)(?:; .*)?": run_there,
    r"(.*?)   in (\S+) of these nodes; then log in again": add_line,
    r"(--[a-z-]+)=(\S+) in (\S+):(\d+)": edit_option,
    r"(\S+) in place of (\S+) in (\S+):(\d+)": edit_text,
    r"remove (.+) from (\S+):(\d+)": remove_text,
    r"(?:use nodes with GPUs; for a job that uses none: )?(\S+):(\d+): (\w+)=(\S*)": edit_variable,
    r"(?:use nodes with GPUs; for a job that uses none: )?(--env \S+=\S*)": set_option,
}
"""What a fix asks for; only those of a route, a switch, a file to delete and a node leave it to people how."""
