"""What is learned of the cameras beside the scene: poses and exposure."""
