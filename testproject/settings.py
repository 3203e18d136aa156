"""Settings of the test project, from the environment: DATABASE_URL, SECRET_KEY, DEBUG, ALLOWED_HOSTS, EXTRA_APPS, WORKFLOWS, TASKS."""

import json
from pathlib import Path

import environ

BASE_DIR = Path(__file__).resolve().parent.parent
env = environ.Env()

SECRET_KEY = env.str("SECRET_KEY", default="only-for-the-demo-and-the-tests")
DEBUG = env.bool("DEBUG", default=True)
ALLOWED_HOSTS = env.list("ALLOWED_HOSTS", default=["localhost", "127.0.0.1"])

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "ezgh_workflows_django",
    "testproject",
    "testproject.gallery",
    "testproject.shop",
    *env.list("EXTRA_APPS", default=[]),
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

ROOT_URLCONF = "testproject.urls"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
ASGI_APPLICATION = "testproject.asgi.application"
WSGI_APPLICATION = "testproject.wsgi.application"

DATABASES = {"default": env.db("DATABASE_URL", default=f"sqlite:///{BASE_DIR / 'db.sqlite3'}")}
_database = DATABASES["default"]
if _database["ENGINE"].endswith("sqlite3"):
    _database["OPTIONS"] = {
        "transaction_mode": "IMMEDIATE",
        "timeout": 20,
        "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
    }
    # Threads and processes share the tests' database, so it is a file.
    _database["TEST"] = {"NAME": f"{_database['NAME']}.test"}
else:
    _database["CONN_MAX_AGE"] = 600
    _database["CONN_HEALTH_CHECKS"] = True
    if _database["ENGINE"].endswith("mysql"):
        _database["OPTIONS"] = {"charset": "utf8mb4"}
        _database["TEST"] = {"CHARSET": "utf8mb4"}

DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
TIME_ZONE = "UTC"
STATIC_URL = "static/"

EZGH_WORKFLOWS = json.loads(env.str("WORKFLOWS", default="{}"))
if env.str("TASKS", default=""):
    TASKS = json.loads(env.str("TASKS"))
