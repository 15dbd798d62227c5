"""The example in one process tree, without `flwr run`: python simulate.py."""

import os

os.environ |= {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}

from flwr.simulation import run_simulation
from quickstart.client_app import app as client_app
from quickstart.server_app import app as server_app

if __name__ == "__main__":
    resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0}}
    machine = {"init_args": {"num_cpus": 2, "include_dashboard": False}}
    run_simulation(server_app, client_app, num_supernodes=4, backend_config={**resources, **machine})
