"""What Amazon's SDK makes of a rendered estimator.py: one JSON line of what it would hand to the containers."""

import json
import runpy
import sys

import boto3
import sagemaker
from sagemaker.pytorch import PyTorch


def handed_over(path):
    """The SDK judges the arguments as it makes the estimator, and the parameters as it makes the hyperparameters."""
    session = sagemaker.Session(boto_session=boto3.Session(region_name="us-east-1"))
    estimator = PyTorch(
        role="arn:aws:iam::123456789012:role/train",
        instance_type="ml.p4d.24xlarge",
        sagemaker_session=session,
        **runpy.run_path(path)["ESTIMATOR"],
    )
    return {"instances": estimator.instance_count, **estimator.hyperparameters()}


if __name__ == "__main__":
    print(json.dumps(handed_over(sys.argv[1])))  # noqa: T201
