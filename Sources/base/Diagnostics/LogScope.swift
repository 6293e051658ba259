/// Whose lines a thread writes: what is done for one project is marked so, in every line, by whoever does it.
///
/// Rooms that know nothing of projects say nothing of them. Whoever starts a project does so within its scope, and threads
/// that are started take it along (`carried`).
public enum LogScope {
    @TaskLocal private static var project: String?

    static var currentProject: String? { project }

    /// Lines that are written meanwhile on this thread are marked with the project's name.
    public static func of<T>(_ name: String, _ body: () throws -> T) rethrows -> T {
        try $project.withValue(name, operation: body)
    }

    /// The body with the mark of who calls this, on whatever thread it runs.
    public static func carried(_ body: @escaping @Sendable () -> Void) -> @Sendable () -> Void {
        guard let project else { return body }
        return { of(project, body) }
    }
}
