"""Keys and certificates of a cluster of upstream's components, made with openssl."""

from pathlib import Path

from .machine import run

CLIENTS = {
    "admin": "/O=system:masters/CN=admin",
    "kube-controller-manager": "/CN=system:kube-controller-manager",
    "kube-scheduler": "/CN=system:kube-scheduler",
    "kube-proxy": "/CN=system:kube-proxy",
    "kubelet": "/O=system:nodes/CN=system:node:node-1",
    "kubelet-client": "/O=system:masters/CN=kube-apiserver-kubelet-client",
}


class Pki:
    """The files of a cluster under one directory."""

    def __init__(self, directory, server, names):
        self.directory, self.server = directory, server
        directory.mkdir(parents=True)
        for authority in ("ca", "front-proxy-ca"):
            run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                 "-days", "30", "-subj", f"/CN={authority}", "-keyout", self.key(authority), "-out", self.crt(authority)])
        for name, subject in CLIENTS.items():
            self.sign(name, subject, "ca", "extendedKeyUsage=clientAuth")
        self.sign("front-proxy", "/CN=front-proxy-client", "front-proxy-ca", "extendedKeyUsage=clientAuth")
        self.sign("server", "/CN=kube-apiserver", "ca", f"extendedKeyUsage=serverAuth\nsubjectAltName={names}")
        run(["openssl", "genrsa", "-out", self.key("tokens"), "2048"])
        run(["openssl", "rsa", "-in", self.key("tokens"), "-pubout", "-out", self.crt("tokens")])

    def key(self, name):
        return self.directory / f"{name}.key"

    def crt(self, name):
        return self.directory / f"{name}.crt"

    def sign(self, name, subject, authority, extensions):
        request, wanted = self.directory / f"{name}.csr", self.directory / f"{name}.ext"
        wanted.write_text(extensions + "\n")
        run(["openssl", "req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
             "-subj", subject, "-keyout", self.key(name), "-out", request])
        run(["openssl", "x509", "-req", "-days", "30", "-in", request, "-CA", self.crt(authority), "-CAkey",
             self.key(authority), "-CAcreateserial", "-extfile", wanted, "-out", self.crt(name)])

    def kubeconfig(self, name, path: Path):
        """Writes how a client reaches the API server."""
        path.write_text(f"""apiVersion: v1
kind: Config
current-context: cluster
clusters: [{{name: cluster, cluster: {{server: "{self.server}", certificate-authority: {self.crt("ca")}}}}}]
users: [{{name: user, user: {{client-certificate: {self.crt(name)}, client-key: {self.key(name)}}}}}]
contexts: [{{name: cluster, context: {{cluster: cluster, user: user}}}}]
""")
        return path
