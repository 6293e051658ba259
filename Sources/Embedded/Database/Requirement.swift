/// One thing that the hub, or an application beside it, needs of a database, and how it stands.
public struct Requirement: Sendable, Equatable {
    public enum State: String, Sendable {
        case ok, missing, wrong
    }

    public enum Area: String, Sendable, CaseIterable {
        case server, login, roles, auth, publication, realtime, upkeep, policies

        public var title: String {
            switch self {
            case .server: "PostgreSQL"
            case .login: "The hub's login"
            case .roles: "Roles"
            case .auth: "What policies ask about the caller"
            case .publication: "Publication"
            case .realtime: "Schema realtime"
            case .upkeep: "What the hub does in realtime.messages"
            case .policies: "The login for policies"
            }
        }
    }

    public let area: Area
    public let name: String
    public let state: State
    /// Without it something of the hub does not work. What is not required is worth knowing.
    public let isRequired: Bool
    /// What is there.
    public let detail: String
    /// What to do about it.
    public let hint: String?

    public var isFailure: Bool { isRequired && state != .ok }

    static func ok(_ area: Area, _ name: String, _ detail: String, hint: String? = nil) -> Requirement {
        Requirement(area: area, name: name, state: .ok, isRequired: true, detail: detail, hint: hint)
    }

    static func missing(
        _ area: Area, _ name: String, _ detail: String, isRequired: Bool = true, hint: String?
    ) -> Requirement {
        Requirement(area: area, name: name, state: .missing, isRequired: isRequired, detail: detail, hint: hint)
    }

    static func wrong(
        _ area: Area, _ name: String, _ detail: String, isRequired: Bool = true, hint: String?
    ) -> Requirement {
        Requirement(area: area, name: name, state: .wrong, isRequired: isRequired, detail: detail, hint: hint)
    }
}
