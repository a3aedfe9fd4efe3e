"""Validates manifests from standard input by the schemas of Kubernetes and of CRDs:
schemas.py FOLDER-OF-CRDS VERSION…

Prints a line per problem, and exits with code 1 if there is one."""

import pathlib
import sys

import jsonschema
import kubernetes_validate
import yaml


def closed(schema):
    """Returns the schema of a CRD as a JSON Schema that refuses unknown fields."""
    if isinstance(schema, list):
        return [closed(s) for s in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"]}
    out = {k: closed(v) for k, v in schema.items()}
    if schema.get("type") == "object" and isinstance(schema.get("properties"), dict):
        if not schema.get("x-kubernetes-preserve-unknown-fields"):
            out.setdefault("additionalProperties", False)
    return out


def definitions(folder):
    """Returns the schemas of CRDs by apiVersion and kind."""
    found = {}
    for path in pathlib.Path(folder).glob("*.yaml"):
        for crd in yaml.safe_load_all(path.read_text()):
            for version in crd["spec"]["versions"] if crd else []:
                schema = closed(version["schema"]["openAPIV3Schema"])
                schema["properties"]["metadata"] = {"type": "object"}
                name = crd["spec"]["group"] + "/" + version["name"], crd["spec"]["names"]["kind"]
                found[name] = jsonschema.Draft7Validator(schema)
    return found


def complaints(manifest, crds, versions):
    crd = crds.get((manifest.get("apiVersion"), manifest.get("kind")))
    if crd:
        for error in crd.iter_errors(manifest):
            yield error.json_path + ": " + error.message
        return
    for version in versions:
        try:
            kubernetes_validate.validate(manifest, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            yield version + ": " + ".".join(map(str, error.path)) + ": " + error.message
        except kubernetes_validate.SchemaNotFoundError as error:
            yield version + ": " + error.message


def main(folder, *versions):
    crds, wrong, seen = definitions(folder), 0, 0
    for manifest in yaml.safe_load_all(sys.stdin):
        if manifest is None:
            continue
        seen += 1
        for text in complaints(manifest, crds, versions):
            print(manifest.get("kind"), manifest.get("metadata", {}).get("name"), text)
            wrong += 1
    if not seen:
        print("no manifest")
    return 1 if wrong or not seen else 0


sys.exit(main(*sys.argv[1:]))
