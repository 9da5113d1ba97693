//! Expectations: what a loop has asked for and its informer has not shown yet. (contract only)
