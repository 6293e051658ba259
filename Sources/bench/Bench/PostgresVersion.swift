import Embedded
import System

/// Version of the installed PostgreSQL that scenarios start.
enum PostgresVersion {
    static let installed: String? = {
        guard let binaries = try? PostgresBinaries.find(), let place = try? Workplace(below: "/var/tmp", for: "version")
        else { return nil }
        let output = place.path + "/version"
        _ = try? ChildProcess([binaries.path("postgres"), "--version"], output: output).wait()
        // `postgres (PostgreSQL) 15.8 (Debian …)`
        let words = (TextFile.read(output) ?? "").split(whereSeparator: \.isWhitespace)
        return words.count > 2 ? String(words[2]) : nil
    }()
}
