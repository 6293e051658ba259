/// One thing that the hub, or an application beside it, needs of a database, and how it stands.
public struct Requirement: Sendable, Equatable {
    public enum State: String, Sendable {
        case ok, missing, wrong
    }

    public enum Area: String, Sendable, CaseIterable {
        case settings, server, login, roles, auth, publication, realtime, upkeep, policies, tables

        public var title: String {
            switch self {
            case .settings: "Settings and this machine"
            case .server: "PostgreSQL"
            case .login: "The hub's login"
            case .roles: "Roles"
            case .auth: "What policies ask about the caller"
            case .publication: "Publication"
            case .realtime: "Schema realtime"
            case .upkeep: "What the hub does in realtime.messages"
            case .policies: "The login for policies"
            case .tables: "What subscribers may expect"
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
    /// What to do about it, in words: by whom, or what cannot be said in SQL.
    public let words: String?
    /// Statements that put it right. Where one has a place to be filled in, somebody has to decide.
    public let sql: String?

    public var isFailure: Bool { isRequired && state != .ok }

    /// What to do about it.
    public var hint: String? {
        guard let sql else { return words }
        return words.map { "\($0): \(sql)" } ?? sql
    }

    /// Its statements show somebody what was kept from him, which may be as it is meant to be.
    public let showsMore: Bool

    /// Whether its statements can be run without anything to be decided first.
    public var isFixComplete: Bool { !showsMore && sql.map { !$0.contains("…") } ?? false }

    public init(
        _ area: Area, _ name: String, _ state: State, _ detail: String, isRequired: Bool, words: String?, sql: String?,
        showsMore: Bool = false
    ) {
        self.area = area
        self.name = name
        self.state = state
        self.isRequired = isRequired
        self.detail = detail
        self.words = words
        self.sql = sql
        self.showsMore = showsMore
    }

    public static func ok(
        _ area: Area, _ name: String, _ detail: String, hint: String? = nil, sql: String? = nil
    ) -> Requirement {
        Requirement(area, name, .ok, detail, isRequired: true, words: hint, sql: sql)
    }

    public static func missing(
        _ area: Area, _ name: String, _ detail: String, isRequired: Bool = true, hint: String? = nil, sql: String? = nil
    ) -> Requirement {
        Requirement(area, name, .missing, detail, isRequired: isRequired, words: hint, sql: sql)
    }

    public static func wrong(
        _ area: Area, _ name: String, _ detail: String, isRequired: Bool = true, hint: String? = nil, sql: String? = nil
    ) -> Requirement {
        Requirement(area, name, .wrong, detail, isRequired: isRequired, words: hint, sql: sql)
    }
}
