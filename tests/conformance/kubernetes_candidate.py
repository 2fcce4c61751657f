"""A rival of another make: one candidate of the Kubernetes client's own leader election, which says what it does in lines."""

import logging
import sys
import threading

from kubernetes import config
from kubernetes.leaderelection import electionconfig, leaderelection
from kubernetes.leaderelection.resourcelock.leaselock import LeaseLock

name, namespace, identity = sys.argv[1:]
logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")
config.load_kube_config()


def lead():
    print(f"{identity} leads", flush=True)
    threading.Event().wait()


leaderelection.LeaderElection(
    electionconfig.Config(
        LeaseLock(name, namespace, identity),
        lease_duration=4,
        renew_deadline=3,
        retry_period=1,
        onstarted_leading=lead,
        onstopped_leading=lambda: print(f"{identity} leads no longer", flush=True),
    )
).run()
