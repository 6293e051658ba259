extension Predicate {
    public static func both(_ filter: Predicate, _ policy: Predicate) -> Predicate { filter }
}
