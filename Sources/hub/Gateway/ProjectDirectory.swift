import Settings
import Synchronization

/// Reason why a known project serves no clients now.
public enum ProjectAbsence: String, Sendable, CaseIterable {
    case starting
    /// The project is being reloaded, changed or deleted, and the hub disconnects its clients.
    case stopping
    /// The project could not be started; the hub will try again.
    case failed
    /// The project's description names no database.
    case unconfigured

    /// Reason as a sentence for clients.
    var sentence: String {
        switch self {
        case .starting: "the project is starting"
        case .stopping: "the project restarts or ends"
        case .failed: "the project cannot be started; the hub tries again"
        case .unconfigured: "the project has no database"
        }
    }
}

/// Directory of all known projects, running or not, by name. For a known name, no other project is ever returned.
final class ProjectDirectory: Sendable {
    enum Entry {
        case running(Project)
        case absent(ProjectAbsence)
        /// The project was deleted. Its clients may still try to connect, and no other project serves them.
        case deleted
    }

    private struct Entries {
        var byName: [String: Entry] = [:]
        /// The only known project; nil if there are none or several.
        var only: Entry?
    }

    private let entries = Mutex(Entries())

    /// Result of looking up the project for a host name.
    enum Answer {
        case known(Project)
        /// The name belongs to no project. The project in the value serves all such names.
        case standIn(Project)
        /// The project exists but does not run.
        case absent(ProjectAbsence)
        case none
    }

    /// Returns the project for the first part of a request's host name. If no project has that name, the rule `unknown`
    /// decides.
    ///
    /// - Parameter main: name of the project that the settings describe.
    func project(label: String?, unknown: UnknownHosts, main: String) -> Answer {
        entries.withLock { entries in
            switch label.flatMap({ entries.byName[$0] }) {
            case .running(let project): return .known(project)
            case .absent(let absence): return .absent(absence)
            case .deleted: return .none
            case nil: break
            }
            let standIn: Entry? =
                switch unknown {
                case .single: entries.only
                case .main: entries.byName[main]
                case .refuse: nil
                }
            switch standIn {
            case .running(let project): return unknown == .single ? .known(project) : .standIn(project)
            case .absent(let absence): return .absent(absence)
            case .deleted, nil: return .none
            }
        }
    }

    /// Returns the entry of a name; nil if no project has the name.
    func entry(named name: String) -> Entry? {
        entries.withLock { entries in
            if case .deleted = entries.byName[name] { nil } else { entries.byName[name] }
        }
    }

    /// Running projects, in the order of their numbers.
    var all: [Project] {
        entries.withLock { $0.byName.values.compactMap(\.project).sorted { $0.number < $1.number } }
    }

    /// Projects that do not run, in the order of their names.
    var absent: [(name: String, absence: ProjectAbsence)] {
        entries.withLock { entries in
            entries.byName.compactMap { name, entry in
                if case .absent(let absence) = entry { (name, absence) } else { nil }
            }
        }.sorted { $0.0 < $1.0 }
    }

    func add(_ project: Project) { change { $0[project.name] = .running(project) } }

    /// Marks the project as stopping, unless another project of its name has been added.
    func remove(_ project: Project) {
        change { entries in
            if case .running(let current) = entries[project.name], current === project {
                entries[project.name] = .absent(.stopping)
            }
        }
    }

    /// Marks the names as absent, all at the same moment. Running projects are not affected.
    func announce(_ names: [String], _ absence: ProjectAbsence) {
        change { entries in
            for name in names where entries[name]?.project == nil { entries[name] = .absent(absence) }
        }
    }

    /// Marks names as those of deleted projects. No project serves their clients until a project of that name exists
    /// again.
    func remember(deleted names: [String]) {
        change { entries in
            for name in names where entries[name]?.project == nil { entries[name] = .deleted }
        }
    }

    private func change(_ body: (inout [String: Entry]) -> Void) {
        entries.withLock { entries in
            body(&entries.byName)
            let known = entries.byName.values.filter { if case .deleted = $0 { false } else { true } }
            entries.only = known.count == 1 ? known.first : nil
        }
    }
}

extension ProjectDirectory.Entry {
    fileprivate var project: Project? { if case .running(let project) = self { project } else { nil } }
}
