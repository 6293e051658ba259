import Settings
import Synchronization

/// The projects there are, by the names that hosts have for them.
final class ProjectDirectory: Sendable {
    private struct Entries {
        var byName: [String: Project] = [:]
        var only: Project?
    }

    private let entries = Mutex(Entries())

    /// Whom a host name leads to.
    enum Answer {
        case known(Project)
        /// The name is no project's, and this one answers for all such.
        case standIn(Project)
        case none
    }

    /// The project that a client means: by the first label of the host it asked for, or as is said of other names.
    ///
    /// - Parameter main: the name of the settings' own project.
    func project(host: String?, unknown: UnknownHosts, main: String) -> Answer {
        entries.withLock { entries in
            if let named = host.flatMap({ entries.byName[Self.firstLabel($0)] }) { return .known(named) }
            switch unknown {
            case .single: return entries.only.map { .known($0) } ?? .none
            case .main: return entries.byName[main].map { .standIn($0) } ?? .none
            case .refuse: return .none
            }
        }
    }

    func project(named name: String) -> Project? { entries.withLock { $0.byName[name] } }

    var all: [Project] { entries.withLock { $0.byName.values.sorted { $0.number < $1.number } } }

    func add(_ project: Project) { change { $0.byName[project.name] = project } }

    /// Only this one: another of its name may have come since.
    func remove(_ project: Project) {
        change { entries in
            if entries.byName[project.name] === project { entries.byName[project.name] = nil }
        }
    }

    private func change(_ body: (inout Entries) -> Void) {
        entries.withLock { entries in
            body(&entries)
            entries.only = entries.byName.count == 1 ? entries.byName.values.first : nil
        }
    }

    /// A host without a dot is used whole, and its port is none of its name.
    static func firstLabel(_ host: String) -> String {
        let name = host.utf8.prefix { $0 != UInt8(ascii: ".") && $0 != UInt8(ascii: ":") }
        return String(decoding: name, as: UTF8.self).lowercased()
    }
}
