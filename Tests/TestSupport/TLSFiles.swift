import System

/// Certificates of a test in files: an authority, and a certificate that it signed for servers and clients.
public struct TLSFiles: Sendable {
    public let authority: String
    public let certificate: String
    public let key: String

    public struct Failure: Error, CustomStringConvertible {
        public let description: String
    }

    /// Makes an authority and a certificate for host names and IP addresses, by the program openssl.
    public static func make(hosts: [String], name: String = "tidewire test") throws -> TLSFiles {
        let directory = TemporaryDirectory.make("tls")
        let files = TLSFiles(
            authority: directory + "/authority.pem", certificate: directory + "/certificate.pem",
            key: directory + "/key.pem")
        let alternatives = hosts.map { ($0.allSatisfy { $0.isNumber || $0 == "." } ? "IP:" : "DNS:") + $0 }
        let made = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30".split(separator: " ").map(
            String.init)
        try run(
            made + [
                "-subj", "/CN=\(name) authority", "-keyout", directory + "/authority.key", "-out", files.authority,
            ],
            directory)
        let extensions = [
            "subjectAltName=" + alternatives.joined(separator: ","), "extendedKeyUsage=serverAuth,clientAuth",
            "basicConstraints=critical,CA:FALSE",
        ]
        try run(
            made + ["-subj", "/CN=\(name)"] + extensions.flatMap { ["-addext", $0] }
                + ["-CA", files.authority, "-CAkey", directory + "/authority.key"]
                + ["-keyout", files.key, "-out", files.certificate], directory)
        return files
    }

    private static func run(_ arguments: [String], _ directory: String) throws {
        let ending = try ChildProcess(["openssl"] + arguments, output: directory + "/log").wait()
        guard ending == .exited(0) else { throw Failure(description: "openssl \(arguments): see \(directory)/log") }
    }
}
