import Glibc
import Server
import Settings

/// Description of the machine on which the benchmark runs, for its report.
public enum Machine {
    public static func description(directory: String) -> String {
        let parts = [
            TextFile.line("model name", in: "/proc/cpuinfo") ?? "unknown processor",
            "\(sysconf(Int32(_SC_NPROCESSORS_ONLN))) cores", "Linux \(kernel)",
            "\(fileSystem(of: directory)) at \(directory)", postgres, "Swift \(Product.swift)", "load \(load)",
        ]
        return parts.joined(separator: ", ")
    }

    private static var kernel: String {
        TextFile.read("/proc/sys/kernel/osrelease").map { String($0.prefix { !$0.isNewline }) } ?? "?"
    }

    /// Average load of the machine in the last minute. Other programs on the machine make the figures vary.
    private static var load: String {
        TextFile.read("/proc/loadavg").map { String($0.prefix { $0 != " " }) } ?? "?"
    }

    private static var postgres: String {
        PostgresVersion.installed.map { "PostgreSQL \($0)" } ?? "no PostgreSQL"
    }

    /// Returns the type of the file system that holds a path: that of the longest mount point above the path.
    static func fileSystem(of path: String) -> String {
        var best = (length: -1, kind: "?")
        for line in (TextFile.read("/proc/self/mounts") ?? "").split(separator: "\n") {
            let fields = line.split(separator: " ")
            guard fields.count > 2, isAbove(fields[1], path), fields[1].count > best.length else { continue }
            best = (fields[1].count, String(fields[2]))
        }
        return best.kind
    }

    private static func isAbove(_ mount: Substring, _ path: String) -> Bool {
        mount == "/" || path == mount || path.hasPrefix(mount + "/")
    }
}
