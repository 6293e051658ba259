import Diagnostics

/// Settings from `tidewire.conf` and the files that it includes.
extension GivenSettings {
    static let usualFiles = ["./tidewire.conf", "/etc/tidewire/tidewire.conf"]
    static let fileVariable = Setting.environmentPrefix + "CONFIG"
    /// Variable with the directory of PostgreSQL's programs, for commands that start a server (`tidewire dev`) and for
    /// tests. It is no setting of the hub.
    static let serverVariable = Setting.environmentPrefix + "PG_BINDIR"

    /// Reads the configuration file at the path; without a path, the first of the usual files that exists. Returns the
    /// path that was read; nil if none was.
    mutating func readFile(named path: String?, in surroundings: ConfigurationSurroundings) -> String? {
        if let path { return readAsked(path, by: "--config", in: surroundings) }
        if let path = surroundings.nonEmpty(Self.fileVariable) {
            return readAsked(path, by: "environment \(Self.fileVariable)", in: surroundings)
        }
        return Self.usualFiles.first { read($0, depth: 0, in: surroundings) }
    }

    /// Reads a configuration file that was requested by name, so that a missing file is an error.
    private mutating func readAsked(
        _ path: String, by place: String, in surroundings: ConfigurationSurroundings
    ) -> String? {
        if read(path, depth: 0, in: surroundings) { return path }
        report(place, "there is no file \(path)")
        return nil
    }

    /// Reads a configuration file. Returns false if it does not exist.
    private mutating func read(_ path: String, depth: Int, in surroundings: ConfigurationSurroundings) -> Bool {
        switch surroundings.readFile(path) {
        case .missing: return false
        case .unreadable(let reason): report(path, "cannot be read: \(reason)")
        case .bytes(let bytes): take(ConfigurationFile(bytes), path, depth: depth, in: surroundings)
        }
        return true
    }

    private mutating func take(
        _ file: ConfigurationFile, _ path: String, depth: Int, in surroundings: ConfigurationSurroundings
    ) {
        for mistake in file.mistakes {
            report("\(path):\(mistake.line)", mistake.message)
        }
        for line in file.lines {
            switch line.name {
            case "include", "include_if_exists": include(line, from: path, depth: depth, in: surroundings)
            default: take(line, from: path)
            }
        }
    }

    private mutating func take(_ line: ConfigurationFile.Line, from path: String) {
        guard let setting = Setting.named(line.name) else {
            let hint = NearestName.to(line.name, among: Setting.all.map(\.name)).map { "; did you mean \($0)?" }
            return report("\(path):\(line.number)", "there is no setting \(line.name)\(hint ?? Self.listHint)")
        }
        give(setting, line.value, from: .file(path: path, line: line.number))
    }

    /// Reads an included file. A relative path is relative to the including file's directory, as in PostgreSQL.
    private mutating func include(
        _ line: ConfigurationFile.Line, from path: String, depth: Int, in surroundings: ConfigurationSurroundings
    ) {
        let place = "\(path):\(line.number)"
        guard depth < Limits.maximumConfigurationIncludeDepth else {
            return report(place, "files include each other more than \(Limits.maximumConfigurationIncludeDepth) deep")
        }
        let directory = path.lastIndex(of: "/").map { path[...$0] } ?? ""
        let included = line.value.hasPrefix("/") ? line.value : directory + line.value
        let isThere = read(included, depth: depth + 1, in: surroundings)
        if !isThere && line.name == "include" { report(place, "there is no file \(included)") }
    }

    static let listHint = "; `tidewire config` lists them all"
}
