/// Project that serves clients whose host name belongs to no project.
public enum UnknownHosts: String, Sendable, CaseIterable {
    /// The only project, if there is only one; otherwise none.
    case single
    /// The settings' own project, even if there are others.
    case main
    /// No project, even if there is only one.
    case refuse
}
