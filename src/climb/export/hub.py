"""An export on the Hugging Face hub."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from climb.errors import ClimbError, InputError


def need_hub(repository: str) -> None:
    """Refuse, before any work, a name that is none, or where the library is missing."""
    owner, _, name = repository.partition("/")
    if not owner or not name or "/" in name:
        raise InputError(f"a repository of the hub is called OWNER/NAME; given '{repository}'")
    try:
        import_module("huggingface_hub")
    except ModuleNotFoundError as error:
        raise InputError('--push needs huggingface_hub. Type: pip install "climb-ssl[hub]"') from error


def push(folder: Path, repository: str) -> str:
    """Upload an export's folder to the repository OWNER/NAME; its address.

    A repository that does not exist is made, private: showing it to everybody is for its owner to decide.
    """
    need_hub(repository)
    hub = import_module("huggingface_hub")
    try:
        api = hub.HfApi()
        api.create_repo(repository, private=True, exist_ok=True)
        api.upload_folder(repo_id=repository, folder_path=str(folder), commit_message="An encoder exported by climb")
    # No network, no token, no right to write: the library has an exception for each, and changes them.
    except Exception as error:
        reason = " ".join(str(error).split())
        raise ClimbError(
            f"nothing was uploaded to {repository}: {reason}. Log in with: hf auth login. The export is in {folder}"
        ) from error
    return f"{api.endpoint}/{repository}"
